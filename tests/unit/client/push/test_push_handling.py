"""Ordered messages of a push consumer: attempts and pauses while sessions break and queues are reassigned."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from ortoo.client.core.received import ReceivedMessage
from ortoo.client.handling.runs import HandlerRuns
from ortoo.client.push.push_handlers import PushHandlers
from ortoo.common.process.background import Background
from ortoo.v1 import pull_pb2
from ortoo.verification.time.virtual_time import in_virtual_time, running_clock
from tests.unit.client.push.member_bench import A, B, Server

BACK_OFF_S = 7_200.0


class Handled:
    """A member whose handler fails, with its calls and its nacks."""

    def __init__(self) -> None:
        self.server = Server()
        self.tried: list[tuple[int, int]] = []
        """Offset and attempt."""
        self.works = False
        self.goes_on = asyncio.Event()
        """The handler waits for it."""
        self.goes_on.set()
        self.answers = asyncio.Event()
        """The server answers when it is set."""
        self.answers.set()

    async def messages(self) -> AsyncGenerator[ReceivedMessage, None]:
        """Messages as the consumer yields them."""
        while True:
            for message in await self.server.member.next_batch():
                yield message

    async def handle(self, message: ReceivedMessage) -> None:
        """Errors: ValueError, until `works` is set."""
        self.tried.append((message.offset, message.attempt))
        await self.goes_on.wait()
        if not self.works:
            raise ValueError("not now")

    async def send_back(
        self, messages: Sequence[ReceivedMessage], failure: BaseException, attempt_in_order: int
    ) -> pull_pb2.NackMessagesResponse:
        """Answer with a long delay."""
        await self.answers.wait()
        return pull_pb2.NackMessagesResponse(delay_ms=int(BACK_OFF_S * 1000))

    async def rest(self, seconds: float = 0.001) -> None:
        """Advance the time by `seconds`."""
        await running_clock().sleep(seconds)


@contextlib.asynccontextmanager
async def handled() -> AsyncIterator[Handled]:
    """A member that handles messages."""
    it = Handled()
    it.server.member.open()
    handlers = PushHandlers(
        "g",
        it.handle,
        it.server.member,
        it.send_back,
        running_clock(),
        concurrency=1,
        retry_delay_ms=1_000,
        runs=HandlerRuns(),
    )
    async with contextlib.aclosing(it.messages()) as messages, Background("test") as background:
        background.spawn("handlers", handlers.run(messages))
        yield it


@in_virtual_time
async def test_a_message_in_order_keeps_its_tries_when_its_session_breaks() -> None:
    """Otherwise a message that always fails would never be parked if sessions break during its pauses."""
    async with handled() as it:
        server = it.server
        server.assign(A)
        server.deliver(A, 0, 1, "m")
        await it.rest()
        for attempt in (2, 3):
            server.open()
            server.assign(A)
            assert server.suspended == {0}
            await it.rest(BACK_OFF_S)
            assert server.suspended == set()
            server.deliver(A, 0, 1, "m")
            await it.rest()
            assert it.tried[-1] == (0, attempt)
        assert len(it.tried) == 3


@in_virtual_time
async def test_a_queue_that_went_while_a_message_waited_for_its_next_try_is_taken_from_when_it_is_back() -> None:
    """Another member had its messages meanwhile, so the old retry is not waited for."""
    for breaks in (False, True):
        async with handled() as it:
            server = it.server
            server.assign(A, B)
            server.deliver(A, 0, 2, "m")
            await it.rest()
            assert (it.tried, server.suspended) == ([(0, 1)], {0})
            if breaks:
                server.open()
            server.assign(B)
            assert server.suspended == set()
            await it.rest()
            server.assign(A, B)
            it.works = True
            server.deliver(A, 2, 2, "m")
            await it.rest()
            server.member.report_progress()
            assert it.tried == [(0, 1), (2, 1), (3, 1)]
            assert server.acknowledged == [(0, 4, server.generation)]
            assert server.all_is_back


@in_virtual_time
async def test_a_message_whose_queue_went_while_it_failed_holds_nothing() -> None:
    """Its new owner retries it."""
    async with handled() as it:
        server = it.server
        server.assign(A, B)
        it.goes_on.clear()
        server.deliver(A, 0, 1, "m")
        await it.rest()
        server.assign(B)
        it.goes_on.set()
        await it.rest()
        assert server.suspended == set()
        server.assign(A, B)
        it.works = True
        server.deliver(A, 1, 1, "m")
        await it.rest()
        assert it.tried == [(0, 1), (1, 1)]


@in_virtual_time
async def test_a_message_whose_queue_went_and_is_back_before_it_is_known_when_to_try_again_holds_nothing() -> None:
    """The queue was reassigned during the handler or the nack, so the old retry is not waited for."""
    for waits in ("handler", "server"):
        async with handled() as it:
            server = it.server
            slow = it.goes_on if waits == "handler" else it.answers
            slow.clear()
            server.assign(A)
            server.deliver(A, 0, 1, "m")
            await it.rest()
            server.assign()
            server.assign(A)
            server.deliver(A, 1, 1, "m")
            await it.rest()
            it.works = waits == "server"
            slow.set()
            await it.rest()
            it.works = True
            assert it.tried[:2] == [(0, 1), (1, 1)]


@in_virtual_time
async def test_tries_are_those_of_one_topic_also_when_another_one_gets_its_name() -> None:
    """The message at the same offset of the new topic is another one and must not be parked early."""
    async with handled() as it:
        server = it.server
        for topic_id in (77, 78):
            server.assign()
            server.assign(A)
            server.deliver(A, 0, 1, "m", topic_id=topic_id)
            await it.rest()
        assert it.tried == [(0, 1), (0, 1)]
