"""Every delivery, held against what was sent."""

from collections.abc import Callable
from dataclasses import dataclass

from ortoo.client import Queue
from ortoo.testing.simulation.findings import Findings
from ortoo.testing.simulation.kernel.trace import Trace
from ortoo.testing.simulation.oracle.sent import Fate, Sent, SentMessages, key_of

NOWHERE = ""
"""The enode of a message whose client was not told where it lies."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message reached a member of a group."""

    group: str
    member: str
    sent: Sent
    queue: Queue
    offset: int
    attempt: int
    at_s: float


class Received:
    """What groups received."""

    def __init__(
        self,
        sent: SentMessages,
        findings: Findings,
        trace: Trace,
        now_s: Callable[[], float],
        earliest_ms: Callable[[], float],
    ) -> None:
        """`earliest_ms` is what the fastest wall clock has shown so far."""
        self.count = 0
        self._sent = sent
        self._findings = findings
        self._trace = trace
        self._now_s = now_s
        self._earliest_ms = earliest_ms
        self._by_group: dict[str, dict[str, list[Delivery]]] = {}
        self._places: dict[tuple[str, Queue, int], str] = {}

    def delivered(
        self, group: str, member: str, body: bytes, queue: Queue, offset: int, attempt: int = 1
    ) -> Delivery | None:
        """A member got this body from there. None when it is no message of this run."""
        now_s = self._now_s()
        key = key_of(body)
        place = f"{queue.topic}/{queue.enode}/{queue.queue_id}/{offset}"
        self._trace.add(now_s, "delivery", group, member, key, place, "attempt", attempt)
        self.count += 1
        sent = self._sent.of(key) if key is not None else None
        if sent is None or body != sent.body:
            self._findings.add("G3", f"{group} got bytes that nobody sent: {body[:60]!r} from {queue} at {offset}")
            return None
        delivery = Delivery(group, member, sent, queue, offset, attempt, now_s)
        self._check(delivery)
        self._by_group.setdefault(group, {}).setdefault(sent.key, []).append(delivery)
        return delivery

    def of(self, group: str, key: str) -> list[Delivery]:
        """The deliveries of a message to a group."""
        return self._by_group.get(group, {}).get(key, [])

    def count_in(self, group: str) -> int:
        """How many different messages a group got."""
        return len(self._by_group.get(group, {}))

    def missing(self, group: str, topic: str) -> list[Sent]:
        """Acknowledged messages of a topic that a group did not get and must get."""
        got = self._by_group.get(group, {})
        return [
            one
            for one in self._sent.in_topic(topic)
            if one.fate is Fate.STORED and not one.hidden and not one.optional and one.key not in got
        ]

    def _check(self, delivery: Delivery) -> None:
        sent, place = delivery.sent, f"{delivery.queue} at {delivery.offset}"
        if sent.fate is Fate.REFUSED:
            self._findings.add("G11", f"{delivery.group} got {sent.key}, which was refused, from {place}")
        if sent.hidden:
            self._findings.add("G6/G7", f"{delivery.group} got {sent.key}, which was taken back, from {place}")
        if sent.due_at_ms > self._earliest_ms() + 1:
            early_ms = sent.due_at_ms - self._earliest_ms()
            self._findings.add("G6", f"{delivery.group} got {sent.key} from {place}, {early_ms:.0f} ms too early")
        if sent.fate is Fate.STORED and 0 <= sent.offset != delivery.offset and sent.queue is None:
            self._findings.add("G4", f"{sent.key} was acknowledged at {sent.offset}, and came from {place}")
        if not delivery.queue.enode:
            return
        known = self._places.setdefault((delivery.queue.topic, delivery.queue, delivery.offset), sent.key)
        if known != sent.key:
            self._findings.add("G3", f"{place} was {known} and is {sent.key} now")
        if (
            sent.fate is Fate.STORED
            and sent.queue is not None
            and sent.offset >= 0
            and sent.queue.topic == delivery.queue.topic
            and (sent.queue, sent.offset) != (delivery.queue, delivery.offset)
        ):
            self._findings.add(
                "G4", f"{sent.key} was acknowledged in {sent.queue} at {sent.offset}, and came from {place}"
            )
