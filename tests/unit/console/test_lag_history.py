"""The values of the chart of a group's lag, and the rows of its table."""

from ortoo.client import LagHistory, LagSample
from ortoo.console.pages.groups.lag_history import chart_values, table_rows


def test_gaps_are_not_drawn_as_lines() -> None:
    """A missing sample, and a sample without an enode, are gaps. A row of the table says that its lag may be larger."""
    samples = [LagSample(0, 1), LagSample(10_000, 2, 60_000), LagSample(40_000, 3, None, True), LagSample(50_000, 4)]
    values = chart_values(LagHistory(tuple(samples), 10_000))
    assert values["times_s"] == [0, 10, 20, 40, 50]
    assert values["lags"] == [1, 2, None, None, 4]
    assert values["left_s"] == [None, 60, None, None, None]
    [row] = table_rows(samples)
    assert (row.lag_messages, row.is_incomplete, row.retention_left_ms) == (4, True, 60_000)
