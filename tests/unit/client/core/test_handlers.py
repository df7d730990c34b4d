"""What is said of a handler that failed."""

import pytest

from ortoo.client.core.handlers import RetryLater, said
from ortoo.v1 import pull_pb2


def later(cause: Exception | None) -> RetryLater:
    """A handler's wish, because of something."""
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
    """Also what is no text, such as an undecodable name: who cannot tell it would keep the message for ever."""
    assert pull_pb2.SendBackRequest(error=said(failure)).error == words
