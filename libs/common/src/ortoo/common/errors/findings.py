"""Problems that a process reports of itself: a name, the observation, the impact and the remedy."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem; operators' tools and documents refer to it by its name."""

    name: str
    observed: str
    impact: str
    remedy: str
    critical: bool = True
    """Whether something does not work because of the problem. Otherwise something may soon fail, or needs a check."""
    process: str = ""
    """The process that reports the problem, such as `enode enode-0`."""
    subject: str = field(default="", compare=False)
    """The object of the problem, if a process can report several findings with this name."""
    since_ms: int = field(default=0, compare=False)
    """Since when each check of the process has found it; 0 = not known."""
    seen_from_ms: int = field(default=0, compare=False)
    """Since when the process has checked. If `since_ms` is equal, the problem may be older."""


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """The properties that all processes of a cluster have in common, for a comparison between them."""

    directory_id: str = ""
    """The id of the directory that it serves or follows; empty = none yet."""
    name_servers: Sequence[str] = ()
    """The addresses of the name servers that it uses."""
    membership_store: str = ""
    """The identity of the store in which snodes share the members of groups; empty = none, or not known now."""


Source = Callable[[], Iterable[Finding | None]]
"""Returns findings; None = a step of a long examination, after which the event loop may do other work."""


@dataclass(slots=True)
class Findings:
    """All findings of one process; its components add their own."""

    role: str
    """`name server`, `enode` or `snode`."""
    name: str
    sources: list[Source] = field(default_factory=list)
    identity: Callable[[], ClusterIdentity] = ClusterIdentity
    """Tells the current identity."""

    @property
    def process(self) -> str:
        """The process that reports the findings."""
        return f"{self.role} {self.name}"

    def steps(self) -> Iterator[Finding | None]:
        """Examine the process step by step; a step may have a finding."""
        for source in list(self.sources):
            yield from source()


@cache
def process_version(package: str = "ortoo-common") -> str:
    """The version of this process's code, or of one package of it."""
    from importlib import metadata  # takes as long as gRPC's own import

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"
