"""Handlers for a pull consumer's messages: many at a time, or one at a time for each queue."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ortoo.client.core.connection import Connection
from ortoo.client.core.handlers import RetryLater, named, send_back
from ortoo.client.core.received import ReceivedMessage
from ortoo.client.pull.group_member import GroupMember
from ortoo.client.pull.handling_in_order import OrderedHandling, Processed, acknowledge, processed_count
from ortoo.client.pull.process_queue import ProcessQueue
from ortoo.client.pull.settings import Handling
from ortoo.common.errors import OrtooError
from ortoo.common.process.background import Background
from ortoo.common.process.logs import get_logger
from ortoo.v1 import pull_pb2

BatchHandler = Callable[[Sequence[ReceivedMessage]], Awaitable[int | None]]
_log = get_logger("consumer")


class Handlers:
    """Gives a member's messages to a handler until it is cancelled or the member is refused."""

    def __init__(self, connection: Connection, member: GroupMember, handler: Processed, handling: Handling) -> None:
        """`handler` returns how many messages from the front are processed; None = all."""
        self._connection = connection
        self._clock = connection.clock
        self._member = member
        self._handler = handler
        self._handling = handling
        self._slots = asyncio.Semaphore(handling.concurrency)
        self._ordered = OrderedHandling(member, handler, self._give_back, connection.clock, handling)
        self._again: list[tuple[ProcessQueue, Sequence[ReceivedMessage]]] = []
        """Failed messages that stay here and whose pause is over: they come before new ones."""
        self._running: dict[int, tuple[ProcessQueue, Sequence[ReceivedMessage], float]] = {}

    async def run(self) -> None:
        """Run. Errors: why the member is refused."""
        ordered = self._member.in_order
        async with Background("handlers") as background:
            if not ordered:
                background.spawn("stuck", self._send_stuck_back())
            while True:
                await self._slots.acquire()
                taken = await self._member.next(self._take)
                assert taken is not None, "without a time limit something comes, or it is refused"
                queue, messages = taken
                queue.running += 1
                if ordered:
                    background.spawn("in order", self._handle_in_order(queue, messages))
                else:
                    background.spawn("handle", self._handle(queue, messages, background))

    def _take(self, queue: ProcessQueue) -> tuple[ProcessQueue, Sequence[ReceivedMessage]] | None:
        """The next messages of a queue; None while there are none, or, in order, while others are being processed."""
        for at, again in enumerate(self._again):
            if again[0] is queue:
                return self._again.pop(at)
        if not queue.has_waiting or (self._member.in_order and queue.running):
            return None
        return queue, queue.take(self._handling.batch_messages_max)

    # outside an order

    async def _handle(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage], background: Background) -> None:
        key = id(messages)
        self._running[key] = (queue, messages, self._clock.monotonic_s())
        try:
            done, failure = await self._call(messages)
            stuck = self._running.pop(key, None) is None
            if not stuck:
                acknowledge(messages[:done])
                failed = messages[done:]
                if failed and not queue.is_dropped and not await self._send_back(queue, failed, failure):
                    background.spawn("again", self._come_again(queue, failed))
        finally:
            self._running.pop(key, None)
            self._done(queue)

    async def _come_again(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        await self._clock.sleep(self._handling.retry_delay_ms / 1000)
        self._again = [one for one in (*self._again, (queue, messages)) if not one[0].is_dropped]
        self._member.arrived.set()

    async def _call(self, messages: Sequence[ReceivedMessage]) -> tuple[int, Exception]:
        """How many from the front are processed, and why the others are not."""
        try:
            done = await self._handler(messages)
        except RetryLater as later:
            return 0, later
        except Exception as error:
            _log.exception("a handler failed; the message will come again", **named(self._member.group, messages[0]))
            return 0, error
        return processed_count(done, messages), RetryLater()

    async def _send_back(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage], failure: Exception) -> bool:
        """Whether they are somebody else's business now."""
        if self._member.settings.broadcast:
            _log.warning("a failed message of a broadcast is dropped", **named(self._member.group, messages[0]))
        else:
            try:
                await self._give_back(queue, messages, failure)
            except OrtooError as error:
                _log.warning("a failed message stays here", **named(self._member.group, messages[0]), reason=str(error))
                return False
            self._member.look_at_retries()
        acknowledge(messages)
        return True

    async def _give_back(
        self, queue: ProcessQueue, messages: Sequence[ReceivedMessage], failure: Exception, attempt_in_order: int = 0
    ) -> pull_pb2.SendBackResponse:
        return await send_back(
            self._connection,
            self._member.group,
            messages,
            failure,
            attempt_in_order,
            client_id=self._connection.client_id,
            attempts_max=self._handling.attempts_max,
            generation=queue.generation,
        )

    async def _send_stuck_back(self) -> None:
        timeout_s = self._handling.timeout_ms / 1000
        stuck = TimeoutError(f"the handler did not return within {timeout_s:g} s")
        while True:
            await self._clock.sleep(timeout_s / 4)
            began_by_s = self._clock.monotonic_s() - timeout_s
            for key, (queue, messages, began_s) in list(self._running.items()):
                if began_s < began_by_s and not queue.is_dropped:
                    _log.warning(
                        "a handler does not return; its message is sent back", **named(self._member.group, messages[0])
                    )
                    if await self._send_back(queue, messages, stuck):
                        self._running.pop(key, None)

    # in order

    async def _handle_in_order(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        try:
            await self._ordered.handle(queue, messages)
        finally:
            self._done(queue)

    def _done(self, queue: ProcessQueue) -> None:
        queue.running -= 1
        self._slots.release()
        self._member.arrived.set()
