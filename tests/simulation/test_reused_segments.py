"""Runs in which enodes delete acknowledged messages, and write later ones into the files of their segments."""

import pytest

from ortoo.enode.log.segment import Segment
from ortoo.verification.simulation.run.outcome import RunOptions
from ortoo.verification.simulation.run.simulation import run

RUNS = (
    (1, ("pulling", "ordering", "pushing"), ()),
    (2, ("pulling", "ordering", "pushing"), ()),
    (6, ("pulling", "ordering", "pushing"), ()),
    (4, ("pushing", "transacting"), ("power cut", "kill")),
    (10, ("pulling", "deduplicating", "ordering"), ("power cut",)),
)


def test_nothing_is_found_while_files_are_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every group gets its messages, and the messages that retention did not delete are stored."""
    reused: list[int] = []
    install = Segment.install

    def count(segment: Segment) -> None:
        if segment.is_reused and segment.source is not None:
            reused.append(segment.base)
        install(segment)

    monkeypatch.setattr(Segment, "install", count)
    for seed, scenarios, kinds in RUNS:
        outcome = run(RunOptions(seed, 25.0, scenarios=scenarios, kinds=kinds, retention_bytes=16 << 10))
        assert outcome.violations == (), outcome.options.command()
    assert len(reused) >= 20


def test_the_command_repeats_a_run_with_retention() -> None:
    """The size is one of its arguments."""
    assert RunOptions(1, retention_bytes=16 << 10).command().endswith("--retention-bytes 16384")
    assert "retention" not in RunOptions(1).command()
