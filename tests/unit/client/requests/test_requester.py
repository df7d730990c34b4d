"""Replies and the requests that wait for them, without a server."""

import pytest

from ortoo.client import Forbidden, Message
from ortoo.client.core.connection import Connection
from ortoo.client.requests import requester as module
from ortoo.client.requests.requester import ENDED_MAX, ReplyOutcome, Requester
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness

REPLY = Message(b"reply")


def made(seed: int = 1) -> Requester:
    """A requester that is not connected."""
    return Requester(Connection(["localhost:8081"], clock=SystemClock(), randomness=Randomness(seed)))


async def test_the_first_reply_counts_and_repetitions_are_accepted() -> None:
    """A replier that lost the answer of a snode sends its reply again."""
    requester = made()
    waiting = requester._waiting["1"] = module._Waiting("t")
    for reply in (REPLY, Message(b"another")):
        assert requester.deliver("t", "1", reply) is ReplyOutcome.ACCEPTED
    assert await waiting.reply is REPLY
    del requester._waiting["1"]
    requester._end("1", is_answered=True)
    assert requester.deliver("t", "1", REPLY) is ReplyOutcome.ACCEPTED
    assert requester.late_replies == 0


async def test_a_reply_with_another_topic_is_refused() -> None:
    """Its sender may consume that topic, and not the topic of the request."""
    requester = made()
    waiting = requester._waiting["1"] = module._Waiting("t")
    with pytest.raises(Forbidden, match="another topic"):
        requester.deliver("u", "1", REPLY)
    assert not waiting.reply.done()


async def test_late_replies_are_counted_once_and_remembered_for_a_limited_number() -> None:
    """Also a reply to a request that this client does not know."""
    requester = made()
    requester._end("1", is_answered=False)
    for identity in ("1", "1", "unknown", "unknown"):
        assert requester.deliver("t", identity, REPLY) is ReplyOutcome.LATE
    assert requester.late_replies == 2
    for number in range(2 * ENDED_MAX):
        requester._end(f"{number}", is_answered=True)
    assert len(requester._ended) == ENDED_MAX


def test_each_client_has_a_secret_of_its_own() -> None:
    """It has the size that snodes require, and two clients with one client id have different ones."""
    assert len(made().secret) == 32
    assert made(1).secret != made(2).secret
