"""Handlers for messages that come one by one: how they run, and what happens to a message that one failed with."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from ortoo.client.core.connection import Connection
from ortoo.client.core.place import Queue
from ortoo.client.core.received import MessageFields, ReceivedMessage
from ortoo.client.core.wire import wire_queue
from ortoo.common.groups.retry_policy import DELAY_MS_MAX
from ortoo.common.process.background import Background
from ortoo.v1 import pull_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub

M = TypeVar("M")
PARK_LEVEL = -1
"""The delay level of a message that shall not come again."""
ERROR_LENGTH_MAX = 1_024
TRIES_MAX = 10_000
"""Of so many messages it is known, when their queue or session begins anew in between."""


class RetryLater(Exception):
    """Raised by a handler: the message is not processed and shall come again."""

    def __init__(self, delay_level: int = 0, delay_ms: float | None = None, *, counts: bool = True) -> None:
        """At a delay level, 1 to 18; 0 = as the group says, -1 = never, park it. Or after `delay_ms`, up to a week.

        A delay below 0 means at once. Unless it `counts` the delivery is no attempt: what the handler needs is away,
        the message is not at fault.
        """
        super().__init__(f"again at level {delay_level}" if delay_ms is None else f"again in {delay_ms} ms")
        self.delay_level = delay_level
        self.delay_ms = None if delay_ms is None else min(max(0.0, delay_ms), DELAY_MS_MAX)
        self.counts = counts


def said(failure: Exception) -> str:
    """The error as whoever looks at the dead letter reads it: what the handler met, where it said so."""
    cause = failure.__cause__ if isinstance(failure, RetryLater) else failure
    words = str(failure) if cause is None else f"{type(cause).__name__}: {cause}"
    return words.encode(errors="backslashreplace").decode()  # else what cannot be sent would keep the message here


class Tries:
    """How often messages in order failed at one consumer, which keeps them: in memory, gone with the process."""

    def __init__(self) -> None:
        self._tries: OrderedDict[tuple[int, Queue, int], int] = OrderedDict()

    def begin(self, message: ReceivedMessage) -> None:
        """It is tried now: let it say which try this is."""
        message.tried_here(self._tries.get(_place(message), 0))

    def failed(self, message: ReceivedMessage) -> int:
        """It failed; how often it has been tried, this time included."""
        return self._tries.get(_place(message), message.attempt - 1) + 1

    def keep(self, message: ReceivedMessage, tries: int) -> None:
        """It was tried so often, and comes again."""
        place = _place(message)
        self._tries[place] = tries
        self._tries.move_to_end(place)
        while len(self._tries) > TRIES_MAX:
            self._tries.popitem(last=False)

    def forget(self, message: ReceivedMessage) -> None:
        """It is processed or parked."""
        self._tries.pop(_place(message), None)


def _place(message: ReceivedMessage) -> tuple[int, Queue, int]:
    return message.topic_id, message.queue, message.offset


async def send_back(
    connection: Connection,
    group: str,
    messages: Sequence[ReceivedMessage],
    failure: Exception,
    attempt_in_order: int,
    *,
    client_id: str,
    attempts_max: int = 0,
    generation: int = 0,
) -> pull_pb2.SendBackResponse:
    """Let the server decide what happens to messages of one queue: they come again later, or are parked.

    With `attempt_in_order` the consumer keeps them and tries again; this was so many tries. 0 = the server gives them
    to the group again. `attempts_max` 0 = as the group says. Errors: Unsupported where retries are not served; Fenced,
    Unavailable.
    """
    wish = failure if isinstance(failure, RetryLater) else RetryLater()
    request = pull_pb2.SendBackRequest(
        group=group,
        queue=wire_queue(messages[0].queue),
        offsets=[message.offset for message in messages],
        delay_level=wish.delay_level,
        attempts_max=attempts_max,
        generation=generation,
        error=said(failure)[:ERROR_LENGTH_MAX],
        client_id=client_id,
        uncounted=not wish.counts,
        delay_ms=None if wish.delay_ms is None else int(wish.delay_ms),
        attempt_in_order=attempt_in_order,
    )
    answer: pull_pb2.SendBackResponse = await connection.call(ConsumerServiceStub, "SendBack", request)
    return answer


def named(group: str, message: MessageFields) -> dict[str, object]:
    """What a line of the log says about a message of a group, so that people find it."""
    return {"group": group, "queue": str(message.queue), "offset": message.offset, "message_id": message.message_id}


async def run_handlers(messages: AsyncIterator[M], handle: Callable[[M], Awaitable[None]], *, concurrency: int) -> None:
    """Give each message to `handle`, up to `concurrency` at a time, until there are no more.

    A message is asked for when somebody is free to handle it. Leaving calls off the handlers that still run.
    """
    slots = asyncio.Semaphore(concurrency)

    async def handle_one(message: M) -> None:
        try:
            await handle(message)
        finally:
            slots.release()

    async with Background("handlers") as background:
        await slots.acquire()
        async for message in messages:
            background.spawn("handle", handle_one(message))
            await slots.acquire()
