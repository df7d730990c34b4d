"""The model of a run: the expected state, and the way to report a finding."""

from ortoo.testing.simulation.world import World
from ortoo.verification.simulation.oracle.leases import LeaseModel
from ortoo.verification.simulation.oracle.offsets import CommittedOffsets
from ortoo.verification.simulation.oracle.received import NOWHERE, ReceivedMessages
from ortoo.verification.simulation.oracle.sent import SentMessages

QUIET_PERIOD_S = 40.0
"""After this time without a fault, leases, sessions and routes must have recovered."""
DELAYED_RESPONSE_S = 30.0
"""After a pause or a partition, an earlier answer may arrive within this time."""
QUIET_S = 15.0
"""After this time, an event of a machine has no further effect there."""


class Oracle:
    """The model."""

    def __init__(self, world: World) -> None:
        """Start without messages."""
        self.world = world
        self.violations = world.violations
        self.sent = SentMessages()
        self.received = ReceivedMessages(self.sent, world.violations, world.trace, self.now_s, self._fastest_wall_ms)
        self.leases = LeaseModel(world.violations, self.now_s, self.is_quiet, self.is_prompt, self.may_have_lost_data)
        self.offsets = CommittedOffsets(world.violations, self.now_s, self.may_have_lost_data)
        self.trouble_until_s = float("-inf")
        """The end of the last fault, past or planned."""
        self._disturbed_at_s: dict[str, float] = {}
        self._detained_at_s = float("-inf")
        self.clock_ahead_ms = 0.0
        """The largest lead of any wall clock."""
        self.damaged: dict[str, float] = {}
        """Enodes whose disk lied or lost promised bytes, and since when: they may report losses."""

        self.has_retention = False
        """Whether enodes delete messages that all groups have acknowledged."""

    def now_s(self) -> float:
        """The run's own time."""
        return self.world.loop.time()

    def trouble(self, until_s: float) -> None:
        """A fault lasts until `until_s`."""
        self.trouble_until_s = max(self.trouble_until_s, until_s)

    def mark_delayed_responses(self) -> None:
        """A fault that delays answers begins or ends now: earlier popped messages may arrive long after."""
        self._detained_at_s = self.now_s()

    def is_prompt(self) -> bool:
        """Whether an answer that arrives now cannot be an old one."""
        return self.now_s() - self._detained_at_s > DELAYED_RESPONSE_S

    def disturbed(self, machine: str) -> None:
        """A fault of a machine begins or ends now."""
        self._disturbed_at_s[machine] = self.now_s()

    def is_quiet(self, machine: str, since_s: float) -> bool:
        """Whether nothing happened to a machine since then, or shortly before; for an unknown machine, to any."""
        at_s = [when_s for name, when_s in self._disturbed_at_s.items() if machine in (name, NOWHERE)]
        return max(at_s, default=float("-inf")) < since_s - QUIET_S

    def disk_damaged(self, machine: str) -> None:
        """The disk of a machine with the only copy lies from now, or has lost data."""
        self.damaged.setdefault(machine, self.now_s())

    def may_have_lost_data(self, machine: str) -> bool:
        """Whether a machine may have restarted since its disk was damaged; for an unknown machine, any.

        It then lacks the damaged records about groups, such as an acknowledgement.
        """
        return any(
            machine in (name, NOWHERE) and self._disturbed_at_s.get(name, float("-inf")) > at_s
            for name, at_s in self.damaged.items()
        )

    def is_undisturbed_since(self, at_s: float) -> bool:
        """Whether no fault was active since then, or for `QUIET_PERIOD_S` before."""
        return at_s - self.trouble_until_s > QUIET_PERIOD_S

    def _fastest_wall_ms(self) -> float:
        return self.world.clock.now_ms() + self.clock_ahead_ms
