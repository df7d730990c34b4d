"""What a test, pytest's ini file and the command line say about a broker."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ortoo.testing.pytest_broker.durations import seconds_of

PATIENCE = "30m"
MARK = "seed, patience, topics, namesrv, enode, snode"


@dataclass(frozen=True, slots=True)
class Choices:
    """How a test wants its broker."""

    seed: int
    patience_s: float
    topics: tuple[str, ...] = ()
    """Topics that are there when the test begins, with four queues each."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of each role, settings that differ from the defaults."""


def chosen(
    mark: Mapping[str, Any], positional: tuple[Any, ...], *, seed: int, patience: str, seed_is_given: bool
) -> Choices:
    """What comes of a mark, and of the seed and the patience that hold without one.

    A seed that was given on the command line goes before that of the mark. Errors: ValueError, naming what is wrong.
    """
    if positional:
        raise ValueError(f"@pytest.mark.ortoo takes names only ({MARK}), not {positional!r}")
    known = MARK.split(", ")
    unknown = sorted(set(mark) - set(known))
    if unknown:
        raise ValueError(f"@pytest.mark.ortoo does not know {', '.join(unknown)}; it takes {MARK}")
    if not isinstance(mark.get("seed", 0), int):
        raise ValueError(f"seed of @pytest.mark.ortoo is a whole number, not {mark['seed']!r}")
    topics = mark.get("topics", ())
    if isinstance(topics, str):
        raise ValueError(f"topics of @pytest.mark.ortoo are several names: topics=[{topics!r}]")
    return Choices(
        seed=seed if seed_is_given else mark.get("seed", seed),
        patience_s=seconds_of(mark.get("patience", patience)),
        topics=tuple(topics),
        settings={role: dict(mark[role]) for role in ("namesrv", "enode", "snode") if role in mark},
    )
