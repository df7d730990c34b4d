"""Replies and the requests that wait for them, without a server."""

import asyncio
import contextlib
from typing import Any

import pytest

from ortoo.client import Forbidden, Invalid, Message, OrtooError, Unavailable
from ortoo.client.core.closed import ClientClosed
from ortoo.client.core.connection import Connection
from ortoo.client.requests import requester as module
from ortoo.client.requests.requester import ENDED_MAX, ReplyOutcome, Requester
from ortoo.common.process.background import Background
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


class SlowStore(Connection):
    """A connection whose calls end when the test decides so."""

    def __init__(self) -> None:
        """Calls wait."""
        super().__init__(["localhost:8081"], clock=SystemClock(), randomness=Randomness(1))
        self.called = asyncio.Event()
        self.outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.requests: list[Any] = []

    async def call(self, stub: Any, method: str, request: Any, **options: Any) -> Any:
        """Wait for `outcome`."""
        self.requests.append(request)
        self.called.set()
        return await asyncio.shield(self.outcome)


def registered(connection: Connection) -> Requester:
    """A requester that a snode has registered."""
    requester = Requester(connection)
    requester.on_needed = lambda: requester.on_registered("a@" + "0" * 32)
    return requester


@pytest.mark.parametrize("failure", [None, Unavailable("no answer"), Invalid("stored before, refused now")])
async def test_a_reply_counts_although_the_answer_to_the_send_is_lost(failure: OrtooError | None) -> None:
    """The replier was told that the requester waited, so that the requester must return the reply."""
    connection = SlowStore()
    async with registered(connection) as requester, Background("ask") as background:
        asked = background.spawn("ask", requester.request("t", b"?", 0.5 if failure is None else 30))
        await connection.called.wait()
        [identity] = requester._waiting
        assert requester.deliver("t", identity, REPLY) is ReplyOutcome.ACCEPTED
        if failure is not None:
            connection.outcome.set_exception(failure)
        assert await asked is REPLY


async def test_a_reply_to_a_cancelled_request_is_late() -> None:
    """Also in the moment between the cancellation and the end of the request."""
    connection = SlowStore()
    connection.outcome.set_result(None)
    async with registered(connection) as requester, Background("ask") as background:
        asked = background.spawn("ask", requester.request("t", b"?", 30))
        await connection.called.wait()
        [(identity, waiting)] = requester._waiting.items()
        while not waiting.is_stored:
            await SystemClock().sleep(0)
        asked.cancel()
        assert requester.deliver("t", identity, REPLY) is ReplyOutcome.LATE
        with contextlib.suppress(asyncio.CancelledError):
            await asked
        assert requester.deliver("t", identity, REPLY) is ReplyOutcome.LATE
        assert requester.late_replies == 1


async def test_requests_on_their_way_fail_with_the_end_of_the_client() -> None:
    """Also those that wait for a call with others. A cancellation would look like one of the caller's task."""
    connection = SlowStore()
    async with Background("ask") as background:
        async with registered(connection) as requester:
            asked = [background.start_future("ask", requester.request("t", b"?", 30)) for _ in range(20)]
            while len(connection.requests) < 5:
                await SystemClock().sleep(0)
        connection.outcome.set_exception(ClientClosed())
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in outcomes] == [ClientClosed] * 20
