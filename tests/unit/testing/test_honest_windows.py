"""The latency that the honest client of the hostile runs reports."""

from typing import Any

from tests.hostile.siege import WINDOW_MS, WINDOW_REPORTS, Honest


def p99_ms(*windows: list[float]) -> float:
    """That of windows with these latencies, in milliseconds."""
    process: Any = None
    honest = Honest(process)
    for took_ms in windows:
        honest._reports += [(took_ms, 0.0)] * WINDOW_REPORTS
    return honest.p99_ms()[0]


def test_a_window_without_a_message_is_slow() -> None:
    """Otherwise a cluster that serves no message would be as fast as before."""
    usual = [5.0] * 100
    assert p99_ms(usual, usual, usual) == 5.0
    assert p99_ms([], [], usual) == WINDOW_MS
