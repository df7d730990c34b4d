"""All that is known to be true in a run, and the way to say so."""

from ortoo.testing.simulation.oracle.leases import Leases
from ortoo.testing.simulation.oracle.offsets import CommittedOffsets
from ortoo.testing.simulation.oracle.received import NOWHERE, Received
from ortoo.testing.simulation.oracle.sent import SentMessages
from ortoo.testing.simulation.world import World

CALM_S = 40.0
"""So long after the last fault nothing excuses anything: leases, sessions and routes have found their way back."""
DETAINED_S = 30.0
"""So long after a pause or a partition an answer may arrive that was given before."""
QUIET_S = 15.0
"""So long after something happened to a machine nothing of it is left there."""


class Oracle:
    """The model."""

    def __init__(self, world: World) -> None:
        """Nothing was sent yet."""
        self.world = world
        self.findings = world.findings
        self.sent = SentMessages()
        self.received = Received(self.sent, world.findings, world.trace, self.now_s, self._fastest_wall_ms)
        self.leases = Leases(world.findings, self.now_s, self.is_quiet, self.is_prompt, self.may_have_forgotten)
        self.offsets = CommittedOffsets(world.findings, self.now_s, self.may_have_forgotten)
        self.trouble_until_s = float("-inf")
        """When the last fault was over, or is going to be."""
        self._disturbed_at_s: dict[str, float] = {}
        self._detained_at_s = float("-inf")
        self.clock_ahead_ms = 0.0
        """How far any wall clock was ahead, at most."""
        self.damaged: dict[str, float] = {}
        """Enodes whose disk lied or lost bytes that it had promised, and since when: what is named as lost may be."""

    def now_s(self) -> float:
        """The run's own time."""
        return self.world.loop.time()

    def trouble(self, until_s: float) -> None:
        """A fault lasts until then."""
        self.trouble_until_s = max(self.trouble_until_s, until_s)

    def detained(self) -> None:
        """Something that holds answers up begins or ends now: what was popped before may arrive long after."""
        self._detained_at_s = self.now_s()

    def is_prompt(self) -> bool:
        """Whether nothing that is received now can be an old answer."""
        return self.now_s() - self._detained_at_s > DETAINED_S

    def disturbed(self, machine: str) -> None:
        """Something happens to a machine now, or ends."""
        self._disturbed_at_s[machine] = self.now_s()

    def is_quiet(self, machine: str, since_s: float) -> bool:
        """Whether nothing happened to a machine since then, nor shortly before; or, if it is not known, to any."""
        at_s = [when_s for name, when_s in self._disturbed_at_s.items() if machine in (name, NOWHERE)]
        return max(at_s, default=float("-inf")) < since_s - QUIET_S

    def disk_damaged(self, machine: str) -> None:
        """The disk of a machine, which has the only copy, lies from now on or has lost something."""
        self.damaged.setdefault(machine, self.now_s())

    def may_have_forgotten(self, machine: str) -> bool:
        """Whether a machine may have begun anew since its disk was damaged; or, if it is not known which, any.

        What the damaged bytes said of groups, such as an acknowledgement, it has not read.
        """
        return any(
            machine in (name, NOWHERE) and self._disturbed_at_s.get(name, float("-inf")) > at_s
            for name, at_s in self.damaged.items()
        )

    def calm_since(self, at_s: float) -> bool:
        """Whether nothing was wrong since then, and for a good while before."""
        return at_s - self.trouble_until_s > CALM_S

    def _fastest_wall_ms(self) -> float:
        return self.world.clock.now_ms() + self.clock_ahead_ms
