"""What a process knows to be wrong with itself: a name, what was seen, what follows, what to do."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong; operators' tools and documents know it by its name."""

    name: str
    seen: str
    consequence: str
    cure: str
    serious: bool = True
    """Whether something does not work because of it; otherwise it soon may not, or somebody should look."""
    process: str = ""
    """Who says so, such as `enode enode-0`."""


Source = Callable[[], Iterable[Finding]]


@dataclass(slots=True)
class Findings:
    """All that one process can say; parts of it add what they know."""

    role: str
    """`name server`, `enode` or `snode`."""
    name: str
    sources: list[Source] = field(default_factory=list)

    @property
    def process(self) -> str:
        """Who says it."""
        return f"{self.role} {self.name}"

    def all(self) -> Sequence[Finding]:
        """What is wrong now."""
        return [finding for source in self.sources for finding in source()]


@cache
def process_version(package: str = "ortoo-common") -> str:
    """The version of this process's code, or of one package of it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"
