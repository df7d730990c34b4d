"""The start of a group in a queue."""

from pathlib import Path

import pytest

from ortoo.client import Queue
from ortoo.client.core.connection import Connection
from ortoo.client.offsets.offset_file import OffsetFile
from ortoo.client.offsets.offset_lookup import start_offsets
from ortoo.client.offsets.start_point import StartRule
from ortoo.client.offsets.store import LocalOffsets
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness

LAST, FIRST, TIME = StartRule(), StartRule(from_beginning=True), StartRule(from_time_ms=1_000)


@pytest.mark.parametrize(
    ("rule", "topic", "expected"),
    [
        (LAST, "t", 90),
        (FIRST, "t", 10),
        (TIME, "t", 40),
        (LAST, "%RETRY%g", 10),
        (FIRST, "%RETRY%g", 10),
        (TIME, "%RETRY%g", 10),
    ],
)
def test_without_a_stored_offset_the_rule_decides(rule: StartRule, topic: str, expected: int) -> None:
    """E-156: a trimmed queue that holds 10 to 90 starts at its end, its first message, or the first after the time."""
    assert rule.offset(topic, 10, 90, 40) == expected


@pytest.mark.parametrize("rule", [LAST, FIRST, TIME])
@pytest.mark.parametrize("committed", [0, 5, 500])
async def test_a_stored_offset_always_wins(rule: StartRule, committed: int, tmp_path: Path) -> None:
    """E-156: even one outside the stored range, and without a request for a time. The pull corrects it."""
    queue, file = Queue("t", "enode-0", 0), OffsetFile(tmp_path / "g.json")
    file.write({queue: committed})
    nobody = Connection(["localhost:1"], clock=SystemClock(), randomness=Randomness(1))
    assert await start_offsets(nobody, LocalOffsets(file), [queue], rule) == {queue: committed}


def test_the_time_is_looked_up_only_when_it_decides() -> None:
    """Only for the rule by time, only without an offset, and not for the retry topic."""
    assert TIME.needs_time("t")
    assert not TIME.needs_time("%RETRY%g")
    assert not LAST.needs_time("t")
