"""Errors and delays of a failed handler."""

import pytest

from ortoo.client.core.handlers import RetryLater, error_text
from ortoo.v1 import pop_pb2, pull_pb2


def later(cause: Exception | None) -> RetryLater:
    """A handler's request for a retry, with a cause."""
    failure = RetryLater(delay_ms=5)
    failure.__cause__ = cause
    return failure


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (ValueError("boom"), "ValueError: boom"),
        (later(None), "again in 5 ms"),
        (later(KeyError("k")), "KeyError: 'k'"),
        (ValueError("name caf\udce9"), "ValueError: name caf\\udce9"),
    ],
)
def test_whatever_a_handler_met_can_be_told(failure: Exception, words: str) -> None:
    """Also errors that are not valid text, because a nack that fails would keep the message forever."""
    assert pull_pb2.NackMessagesRequest(error=error_text(failure)).error == words


@pytest.mark.parametrize(
    ("asked_ms", "delay_ms"), [(None, None), (0, 0), (-1, 0), (-1e300, 0), (7.5, 7.5), (1e300, 604_800_000)]
)
def test_any_delay_of_a_handler_can_be_asked_for(asked_ms: float | None, delay_ms: float | None) -> None:
    """Including a negative one, computed from a past time, which would end the consumer."""
    later = RetryLater(delay_ms=asked_ms)
    assert later.delay_ms == delay_ms
    if delay_ms is not None:
        pop_pb2.NackRequest(delay_ms=int(later.delay_ms or 0))
