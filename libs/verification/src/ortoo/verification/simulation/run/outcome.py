"""The outcome of a run."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ortoo.testing.simulation.violations import Violation
from ortoo.verification.simulation.run.plan import PlannedFault


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run; the same options give the same run."""

    seed: int
    seconds: float = 30.0
    """Virtual seconds of faults and messages, before everything comes to rest."""
    without: tuple[int, ...] = ()
    """Faults of the plan that are left out, by number."""
    faults: bool = True
    scenarios: tuple[str, ...] = ()
    """Scenarios that take part; empty = the seed draws them."""
    kinds: tuple[str, ...] = ()
    """Kinds of faults that happen; empty = the seed draws them."""
    plant: str = ""
    """A planted bug, `module:function`, that is called before the run."""
    replicas: int = 1
    """Replicas of the run's enode."""
    retention_bytes: int = 0
    """The size above which enodes delete acknowledged messages; 0 = they delete none."""

    def arguments(self) -> list[str]:
        """The arguments of the command that repeats the run."""
        words = ["--seed", str(self.seed), "--seconds", f"{self.seconds:g}"]
        if self.without:
            words += ["--without", ",".join(map(str, self.without))]
        if not self.faults:
            words += ["--no-faults"]
        for name in self.scenarios:
            words += ["--scenario", name]
        for kind in self.kinds:
            words += ["--fault", kind]
        if self.replicas > 1:
            words += ["--replicas", str(self.replicas)]
        if self.retention_bytes:
            words += ["--retention-bytes", str(self.retention_bytes)]
        return [*words, "--plant", self.plant] if self.plant else words

    def command(self) -> str:
        """The command that repeats the run."""
        return f"python -m ortoo.verification.simulation {shlex.join(self.arguments())}"


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The findings and figures of a run."""

    options: RunOptions
    violations: tuple[Violation, ...]
    faults: Sequence[PlannedFault]
    digest: str
    """The digest of the trace."""
    lines: int
    virtual_s: float
    processor_s: float
    sent: int
    delivered: int

    def report(self) -> str:
        """The outcome as text."""
        said = f"seed {self.options.seed}: {self.sent} sent, {self.delivered} delivered, {len(self.faults)} faults, "
        said += f"{self.virtual_s:.0f} virtual s in {self.processor_s:.2f} s, trace {self.digest[:16]} of {self.lines}"
        if not self.violations:
            return said
        texts = [str(finding) for finding in self.violations]
        return "\n".join([f"FAILED {said}", *(f"  {text}" for text in texts), f"  repeat: {self.options.command()}"])
