"""The limit of log lines of one kind."""

from ortoo.common.logs.rate_limit import LOG_INTERVAL_S, LogRateLimit


def test_each_kind_of_line_is_written_once_in_an_interval() -> None:
    """A refused line does not delay the next one, and other kinds are not affected."""
    rate = LogRateLimit()
    assert rate.acquire("one", 0.0)
    assert not rate.acquire("one", LOG_INTERVAL_S / 2)
    assert rate.acquire("other", LOG_INTERVAL_S / 2)
    assert rate.acquire("one", LOG_INTERVAL_S)
    assert not rate.acquire("one", LOG_INTERVAL_S * 1.5)
