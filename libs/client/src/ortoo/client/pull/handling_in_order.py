"""Handlers that get the messages of each queue one after another."""

import enum
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from ortoo.client.core.handlers import RetryLater
from ortoo.client.core.received import ReceivedMessage
from ortoo.client.pull.group_member import GroupMember
from ortoo.client.pull.process_queue import ProcessQueue
from ortoo.client.pull.settings import Handling
from ortoo.common.process.clock import Clock
from ortoo.common.process.logs import get_logger

SUSPEND_MIN_MS, SUSPEND_MAX_MS = 10.0, 30_000.0
_log = get_logger("consumer")


class CommitVerdict(enum.Enum):
    """What a handler in order says of its queue when it commits by hand."""

    KEEP = "keep"
    """The message is processed; it is committed with a later one, or comes again when this member loses the queue."""
    COMMIT = "commit"
    """This message and all before it are done for good."""
    ROLL_BACK = "roll_back"
    """This message and all since the last commit come again, after a pause."""


Processed = Callable[[Sequence[ReceivedMessage]], Awaitable[object]]
SendBack = Callable[[ProcessQueue, Sequence[ReceivedMessage]], Awaitable[bool]]


@dataclass(eq=False, slots=True)
class OrderedHandling:
    """What is done with messages of a queue that nobody else touches meanwhile."""

    member: GroupMember
    handler: Processed
    park: SendBack
    """Gives messages up for good, and says whether that worked."""
    clock: Clock
    handling: Handling
    _kept: dict[ProcessQueue, list[ReceivedMessage]] = field(default_factory=dict)
    """Processed and not committed, by queue."""

    async def handle(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Process messages before anything else of the queue, however often it takes; each is committed when done."""
        attempts = 0
        while messages and not queue.is_dropped:
            if not self.member.may_process(queue):
                await self._pause(self.handling.suspend_ms)
                continue
            try:
                done = await self.handler(messages)
            except Exception as error:
                attempts += 1
                if await self._is_parked(queue, messages, attempts):
                    return
                await self._pause_after(error)
                continue
            count = max(0, min(done, len(messages))) if isinstance(done, int) else len(messages)
            acknowledge(messages[:count])
            messages = messages[count:]
            if messages:
                await self._pause(self.handling.suspend_ms)

    async def handle_by_hand(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """The same, one at a time; the handler says when what is processed is committed, or comes again."""
        waiting, attempts = deque(messages), 0
        kept = self._kept.setdefault(queue, [])
        while waiting and not queue.is_dropped:
            if not self.member.may_process(queue):
                await self._pause(self.handling.suspend_ms)
                continue
            message = waiting[0]
            try:
                verdict = await self.handler([message])
            except Exception as error:
                attempts += 1
                if await self._is_parked(queue, [message], attempts):
                    waiting.popleft()
                    attempts = 0
                else:
                    await self._pause_after(error)
                continue
            attempts = 0
            kept.append(waiting.popleft())
            if verdict is CommitVerdict.COMMIT:
                acknowledge(kept)
                kept.clear()
            elif verdict is CommitVerdict.ROLL_BACK:
                waiting.extendleft(reversed(kept))
                kept.clear()
                await self._pause(self.handling.suspend_ms)
        for dropped in [one for one in self._kept if one.is_dropped]:
            del self._kept[dropped]

    async def _is_parked(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage], attempts: int) -> bool:
        if not 0 < self.handling.attempts_max <= attempts:
            return False
        return await self.park(queue, messages)

    async def _pause_after(self, error: Exception) -> None:
        wait_ms = self.handling.suspend_ms
        if isinstance(error, RetryLater):
            wait_ms = error.delay_ms if error.delay_ms is not None else wait_ms
        else:
            _log.error("a handler failed; its queue waits", exc_info=error)
        await self._pause(min(max(wait_ms, SUSPEND_MIN_MS), SUSPEND_MAX_MS))

    async def _pause(self, wait_ms: float) -> None:
        await self.clock.sleep(wait_ms / 1000)


def acknowledge(messages: Sequence[ReceivedMessage]) -> None:
    """All of these are processed."""
    for message in messages:
        message.ack()
