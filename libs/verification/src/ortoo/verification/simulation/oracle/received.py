"""Every delivery, compared with the sent messages."""

from collections.abc import Callable
from dataclasses import dataclass

from ortoo.client import Queue
from ortoo.testing.simulation.kernel.trace import Trace
from ortoo.testing.simulation.violations import Violations
from ortoo.verification.simulation.oracle.sent import SendOutcome, SentMessages, TrackedMessage, key_of

NOWHERE = ""
"""The enode of a message whose client does not know its position."""


@dataclass(frozen=True, slots=True)
class ObservedDelivery:
    """A message reached a group member."""

    group: str
    member: str
    sent: TrackedMessage
    queue: Queue
    offset: int
    attempt: int
    at_s: float


class ReceivedMessages:
    """The messages that groups received."""

    def __init__(
        self,
        sent: SentMessages,
        findings: Violations,
        trace: Trace,
        now_s: Callable[[], float],
        earliest_ms: Callable[[], float],
    ) -> None:
        """`earliest_ms` is the time on the fastest wall clock so far."""
        self.count = 0
        self._sent = sent
        self._findings = findings
        self._trace = trace
        self._now_s = now_s
        self._earliest_ms = earliest_ms
        self._by_group: dict[str, dict[str, list[ObservedDelivery]]] = {}
        self._places: dict[tuple[str, Queue, int], str] = {}

    def delivered(
        self, group: str, member: str, body: bytes, queue: Queue, offset: int, attempt: int = 1
    ) -> ObservedDelivery | None:
        """A group member received this body. None when it is not a message of this run."""
        now_s = self._now_s()
        key = key_of(body)
        place = f"{queue.topic}/{queue.enode}/{queue.queue_id}/{offset}"
        self._trace.add(now_s, "delivery", group, member, key, place, "attempt", attempt)
        self.count += 1
        sent = self._sent.of(key) if key is not None else None
        if sent is None or body != sent.body:
            self._findings.add("G3", f"{group} got bytes that were never sent: {body[:60]!r} from {queue} at {offset}")
            return None
        delivery = ObservedDelivery(group, member, sent, queue, offset, attempt, now_s)
        self._check(delivery)
        self._by_group.setdefault(group, {}).setdefault(sent.key, []).append(delivery)
        return delivery

    def of(self, group: str, key: str) -> list[ObservedDelivery]:
        """The deliveries of a message to a group."""
        return self._by_group.get(group, {}).get(key, [])

    def count_in(self, group: str) -> int:
        """The number of different messages that a group received."""
        return len(self._by_group.get(group, {}))

    def missing(self, group: str, topic: str) -> list[TrackedMessage]:
        """Acknowledged messages of a topic that a group did not receive and must receive."""
        got = self._by_group.get(group, {})
        return [
            one
            for one in self._sent.in_topic(topic)
            if one.outcome is SendOutcome.STORED and not one.hidden and not one.optional and one.key not in got
        ]

    def _check(self, delivery: ObservedDelivery) -> None:
        sent, place = delivery.sent, f"{delivery.queue} at {delivery.offset}"
        if sent.outcome is SendOutcome.REFUSED:
            self._findings.add("G11", f"{delivery.group} got {sent.key}, which was refused, from {place}")
        if sent.hidden:
            self._findings.add(
                "G6/G7", f"{delivery.group} got {sent.key}, which was recalled or rolled back, from {place}"
            )
        if sent.due_at_ms > self._earliest_ms() + 1:
            early_ms = sent.due_at_ms - self._earliest_ms()
            self._findings.add("G6", f"{delivery.group} got {sent.key} from {place}, {early_ms:.0f} ms too early")
        if sent.outcome is SendOutcome.STORED and 0 <= sent.offset != delivery.offset and sent.queue is None:
            self._findings.add("G4", f"{sent.key} was acknowledged at {sent.offset}, and came from {place}")
        if not delivery.queue.enode:
            return
        known = self._places.setdefault((delivery.queue.topic, delivery.queue, delivery.offset), sent.key)
        if known != sent.key:
            self._findings.add("G3", f"{place} was {known} and is {sent.key} now")
        if (
            sent.outcome is SendOutcome.STORED
            and sent.queue is not None
            and sent.offset >= 0
            and sent.queue.topic == delivery.queue.topic
            and (sent.queue, sent.offset) != (delivery.queue, delivery.offset)
        ):
            self._findings.add(
                "G4", f"{sent.key} was acknowledged in {sent.queue} at {sent.offset}, and came from {place}"
            )
