"""The steps of the time line of delayed messages."""

import pytest

from ortoo.console.pages.messages.time_line import BARS_MAX, HEIGHT, WIDTH, time_line

START_MS = 1_700_000_000_000


def test_messages_of_one_step_are_one_bar() -> None:
    """The highest bar has the full height, and a small one is still visible."""
    line = time_line([START_MS] * 1000 + [START_MS + 2_500])
    assert line is not None
    assert (line.step_ms, line.total) == (1000, 1001)
    assert [(one.from_ms, one.count) for one in line.bars] == [(START_MS, 1000), (START_MS + 2_000, 1)]
    assert line.bars[0].height == HEIGHT
    assert line.bars[1].height >= 2
    assert line.largest.count == 1000


@pytest.mark.parametrize("span_ms", [0, 1, 40_000, 3_600_000, 86_400_000, 31_536_000_000, 10**15])
def test_any_span_fits(span_ms: int) -> None:
    """At most 48 steps, inside the picture, which contain every message."""
    due_ms = sorted({START_MS + span_ms * part // 100 for part in range(101)})
    line = time_line(due_ms)
    assert line is not None
    assert len(line.bars) <= BARS_MAX
    assert sum(one.count for one in line.bars) == len(due_ms)
    assert all(one.x >= 0 and one.x + one.width <= WIDTH for one in line.bars)
    for one in line.bars:
        assert one.count == sum(one.from_ms <= due < one.from_ms + line.step_ms for due in due_ms)


def test_no_messages_have_no_line() -> None:
    """The page then says that there is none."""
    assert time_line([]) is None
