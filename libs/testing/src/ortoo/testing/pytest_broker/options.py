"""The options of a broker, from the mark, pytest's ini file and the command line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ortoo.testing.pytest_broker.durations import seconds_of

DEFAULT_TIMEOUT = "30m"
MARK = "seed, patience, topics, namesrv, enode, snode"


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """The options of a test's broker."""

    seed: int
    timeout_s: float
    topics: tuple[str, ...] = ()
    """Topics created before the test, with four queues each."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings of each role that differ from the defaults."""


def options_of_mark(
    mark: Mapping[str, Any], positional: tuple[Any, ...], *, seed: int, patience: str, seed_is_given: bool
) -> BrokerOptions:
    """Combine a mark with the default seed and patience.

    A seed given on the command line precedes that of the mark. Errors: ValueError, naming the wrong option.
    """
    if positional:
        raise ValueError(f"@pytest.mark.ortoo takes names only ({MARK}), not {positional!r}")
    known = MARK.split(", ")
    unknown = sorted(set(mark) - set(known))
    if unknown:
        raise ValueError(f"@pytest.mark.ortoo has no option {', '.join(unknown)}, expected: {MARK}")
    if not isinstance(mark.get("seed", 0), int):
        raise ValueError(f"seed of @pytest.mark.ortoo is a whole number, not {mark['seed']!r}")
    topics = mark.get("topics", ())
    if isinstance(topics, str):
        raise ValueError(f"topics of @pytest.mark.ortoo is a list of names: topics=[{topics!r}]")
    return BrokerOptions(
        seed=seed if seed_is_given else mark.get("seed", seed),
        timeout_s=seconds_of(mark.get("patience", patience)),
        topics=tuple(topics),
        settings={role: dict(mark[role]) for role in ("namesrv", "enode", "snode") if role in mark},
    )
