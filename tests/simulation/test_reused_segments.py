"""Runs in which enodes delete acknowledged messages, and write later ones into the files of their segments."""

from dataclasses import replace

import pytest

from ortoo.enode.log.segment import Segment
from ortoo.verification.simulation.run.outcome import RunOptions
from ortoo.verification.simulation.run.simulation import run

OPTIONS = RunOptions(0, 25.0, retention_bytes=16 << 10)
THREE = replace(OPTIONS, seconds=20.0, scenarios=("ordering", "pushing"), replicas=3)
RUNS = {
    "one disk": [
        *(replace(OPTIONS, seed=seed, scenarios=("pulling", "ordering", "pushing")) for seed in (1, 2, 6)),
        replace(OPTIONS, seed=4, scenarios=("pushing", "transacting"), kinds=("power cut", "kill")),
        replace(OPTIONS, seed=10, scenarios=("pulling", "deduplicating", "ordering"), kinds=("power cut",)),
    ],
    "three disks": [replace(THREE, seed=seed) for seed in (1, 2, 8, 17)],
    "dead letters": [replace(OPTIONS, seed=seed, scenarios=("parking",)) for seed in (1, 2, 5)],
    "reads": [
        replace(OPTIONS, seed=8, scenarios=("reading",), replicas=3),
        replace(OPTIONS, seed=1, scenarios=("reading", "popping"), replicas=3),
    ],
}
"""Runs with one disk, and runs with three in which a replica has to follow a log from its begin.

Dead letters may be deleted before they are listed, and reads show messages that were finished and deleted.
"""


@pytest.mark.parametrize("disks", RUNS)
def test_nothing_is_found_while_files_are_reused(disks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every group gets its messages, and the messages that retention did not delete are stored."""
    reused: list[int] = []
    install = Segment.install

    def count(segment: Segment) -> None:
        if segment.is_reused and segment.source is not None:
            reused.append(segment.base)
        install(segment)

    monkeypatch.setattr(Segment, "install", count)
    for options in RUNS[disks]:
        assert run(options).violations == (), options.command()
    assert len(reused) >= 10


def test_the_command_repeats_a_run_with_retention() -> None:
    """The size is one of its arguments."""
    assert RunOptions(1, retention_bytes=16 << 10).command().endswith("--retention-bytes 16384")
    assert "retention" not in RunOptions(1).command()
