"""The recent ends of push sessions whose clients acknowledged nothing, for operators. No I/O."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ortoo.common.errors.findings import Finding
from ortoo.common.process.clock import Clock

SHOWN_S: Final = 600.0
"""The time for which an eviction is reported."""
REMEMBERED_MAX: Final = 1_000
FINDINGS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Eviction:
    """The evictions of one client from one group."""

    group: str
    client_id: str
    reason: str
    """That of the last one."""
    count: int
    at_s: float
    """The monotonic time of the last one."""

    def __str__(self) -> str:
        times = "once" if self.count == 1 else f"{self.count} times"
        return f"the push session of {self.client_id} in group {self.group} was ended {times}: {self.reason}"


@dataclass(slots=True)
class SlowEvictions:
    """Remembers the evictions of the last minutes by group and client."""

    clock: Clock
    _recent: OrderedDict[tuple[str, str], Eviction] = field(default_factory=OrderedDict)
    """The client that was evicted last is at the end."""

    def record(self, group: str, client_id: str, reason: str) -> None:
        """Note that a session was ended."""
        before = self._recent.pop((group, client_id), None)
        now_s = self.clock.monotonic_s()
        earlier = before.count if before is not None and before.at_s > now_s - SHOWN_S else 0
        self._recent[group, client_id] = Eviction(group, client_id, reason, earlier + 1, now_s)
        if len(self._recent) > REMEMBERED_MAX:
            self._recent.popitem(last=False)

    def of_group(self, group: str) -> list[Eviction]:
        """The recent evictions of a group, the last one first."""
        return [one for one in self._all() if one.group == group]

    def findings(self) -> Iterator[Finding]:
        """One finding for each group and client."""
        for one in self._all()[:FINDINGS_MAX]:
            yield Finding(
                "slow consumer",
                str(one),
                "the group falls behind; each new session starts again at the acknowledged offset",
                f"look at the log of {one.client_id} and at its stacks (py-spy dump): its handler hangs or is slow. "
                f"For slower handlers: ortoo group update {one.group} --slow-grace-ms MS",
                critical=False,
                subject=f"{one.group} {one.client_id}",
            )

    def _all(self) -> list[Eviction]:
        limit_s = self.clock.monotonic_s() - SHOWN_S
        return [one for one in reversed(self._recent.values()) if one.at_s > limit_s]
