"""Leases of groups that pop: a message has one holder at a time, and an acknowledged one never comes again."""

from collections.abc import Callable
from dataclasses import dataclass

from ortoo.testing.simulation.violations import Violations
from ortoo.verification.simulation.oracle.received import ObservedDelivery
from ortoo.verification.simulation.oracle.sent import TrackedMessage, keys

MARGIN_S = 2.0
"""The model ends a lease earlier by this margin, because an answer may have been under way this long."""


@dataclass(frozen=True, slots=True)
class _Lease:
    member: str
    since_s: float
    until_s: float
    enode: str


class LeaseModel:
    """Leases and acknowledgements of groups, message by message."""

    def __init__(
        self,
        findings: Violations,
        now_s: Callable[[], float],
        is_quiet: Callable[[str, float], bool],
        is_prompt: Callable[[], bool],
        may_have_forgotten: Callable[[str], bool],
    ) -> None:
        """`is_quiet`: whether nothing happened to an enode since a time. `is_prompt`: whether answers are recent.

        `may_have_forgotten`: whether damage may have cost an enode its records about groups.
        """
        self._findings = findings
        self._now_s = now_s
        self._is_quiet = is_quiet
        self._is_prompt = is_prompt
        self._may_have_forgotten = may_have_forgotten
        self._asked: dict[tuple[str, str], float] = {}
        self._acknowledged: dict[tuple[str, str], float] = {}
        self._open: dict[str, dict[str, TrackedMessage]] = {}
        self._held: dict[tuple[str, str], _Lease] = {}

    def delivered(self, delivery: ObservedDelivery, invisible_ms: float) -> None:
        """A group member received it, with a lease of at least `invisible_ms`."""
        group, key = delivery.group, delivery.sent.key
        forgotten = self._may_have_forgotten(delivery.queue.enode)
        if (group, key) in self._acknowledged and self._is_prompt() and not forgotten:
            after_s = delivery.at_s - self._acknowledged[group, key]
            self._findings.add("G8", f"{key} came to {group} again, {after_s:.3f} s after its acknowledgement")
        held = self._held.get((group, key))
        if (
            held is not None
            and delivery.at_s < held.until_s
            and self._is_prompt()
            and self._is_quiet(held.enode, held.since_s)
        ):
            self._findings.add(
                "G8",
                f"{key} is {held.member}'s from {held.since_s:.3f} to {held.until_s:.3f} s, and came to "
                f"{delivery.member} too",
            )
        until_s = delivery.at_s + invisible_ms / 1000 - MARGIN_S
        self._held[group, key] = _Lease(delivery.member, delivery.at_s, until_s, delivery.queue.enode)
        if (group, key) not in self._asked:
            self._open.setdefault(group, {})[key] = delivery.sent

    def begin_ack(self, group: str, sent: TrackedMessage) -> None:
        """A group member is about to acknowledge it."""
        self._asked.setdefault((group, sent.key), self._now_s())
        self._held.pop((group, sent.key), None)
        self._open.get(group, {}).pop(sent.key, None)

    def acked(self, group: str, sent: TrackedMessage) -> None:
        """The server confirmed the acknowledgement."""
        self._acknowledged.setdefault((group, sent.key), self._now_s())

    def begin_release(self, group: str, sent: TrackedMessage) -> None:
        """A group member is about to release or nack it."""
        self._held.pop((group, sent.key), None)

    def member_ended(self, member: str) -> None:
        """A group member has ended, and released its messages."""
        for place in [place for place, held in self._held.items() if held.member == member]:
            del self._held[place]

    def is_ack_attempted(self, group: str, key: str) -> bool:
        """Whether an acknowledgement was requested, with any outcome."""
        return (group, key) in self._asked

    def unsettled(self, group: str) -> str:
        """Messages delivered and never acknowledged, as text."""
        left = list(self._open.get(group, {}).values())
        return f"{group} has not acknowledged {keys(left)}" if left else ""
