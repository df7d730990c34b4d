"""What groups that pop have acknowledged: it never comes again."""

from collections.abc import Callable

from ortoo.testing.simulation.findings import Findings
from ortoo.testing.simulation.oracle.received import Delivery
from ortoo.testing.simulation.oracle.sent import Sent, keys


class Leases:
    """Acknowledgements of groups, message by message."""

    def __init__(self, findings: Findings, now_s: Callable[[], float]) -> None:
        """None yet."""
        self._findings = findings
        self._now_s = now_s
        self._asked: dict[tuple[str, str], float] = {}
        self._acknowledged: dict[tuple[str, str], float] = {}
        self._open: dict[str, dict[str, Sent]] = {}

    def delivered(self, delivery: Delivery) -> None:
        """A member has it now."""
        key = (delivery.group, delivery.sent.key)
        if key in self._acknowledged:
            after_s = delivery.at_s - self._acknowledged[key]
            self._findings.add(
                "G8", f"{delivery.sent.key} came to {delivery.group} again, {after_s:.3f} s after its acknowledgement"
            )
        if key not in self._asked:
            self._open.setdefault(delivery.group, {})[delivery.sent.key] = delivery.sent

    def acknowledging(self, group: str, sent: Sent) -> None:
        """A member is about to acknowledge it."""
        self._asked.setdefault((group, sent.key), self._now_s())
        self._open.get(group, {}).pop(sent.key, None)

    def acknowledged(self, group: str, sent: Sent) -> None:
        """The server says that it is done, for good."""
        self._acknowledged.setdefault((group, sent.key), self._now_s())

    def is_asked(self, group: str, key: str) -> bool:
        """Whether somebody acknowledged it, whatever came of that."""
        return (group, key) in self._asked

    def unsettled(self, group: str) -> str:
        """What was delivered and acknowledged by nobody, in words."""
        left = list(self._open.get(group, {}).values())
        return f"{group} has not acknowledged {keys(left)}" if left else ""
