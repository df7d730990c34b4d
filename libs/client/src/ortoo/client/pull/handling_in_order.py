"""Handlers that get the messages of each queue one after another."""

import enum
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
        """Process messages before anything else of the queue, however often it takes; each is committed when done.

        With `manual_commit` one at a time; the handler says when what is processed is committed, or comes again.
        """
        manual = self.handling.manual_commit
        waiting, attempts = list(messages), 0
        while waiting and not queue.is_dropped:
            if not self.member.may_process(queue):
                await self._pause(self.handling.suspend_ms)
                continue
            given = waiting[:1] if manual else waiting
            try:
                outcome = await self.handler(given)
            except Exception as error:
                attempts += 1
                if await self._is_parked(queue, given, attempts):
                    waiting, attempts = waiting[len(given) :], 0
                else:
                    await self._pause_after(error)
                continue
            if manual:
                attempts = 0
                waiting = self._obey(outcome, queue, waiting)
            else:
                count = processed_count(outcome, given)
                acknowledge(given[:count])
                waiting = given[count:]
            if waiting and (outcome is CommitVerdict.ROLL_BACK or not manual):
                await self._pause(self.handling.suspend_ms)
        for dropped in [one for one in self._kept if one.is_dropped]:
            del self._kept[dropped]

    def _obey(self, verdict: object, queue: ProcessQueue, waiting: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """The first waiting message was processed; what waits after the handler's verdict."""
        kept = self._kept.setdefault(queue, [])
        kept.append(waiting[0])
        if verdict not in (CommitVerdict.COMMIT, CommitVerdict.ROLL_BACK):
            return waiting[1:]
        del self._kept[queue]
        if verdict is CommitVerdict.COMMIT:
            acknowledge(kept)
            return waiting[1:]
        return kept + waiting[1:]

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


def processed_count(outcome: object, messages: Sequence[ReceivedMessage]) -> int:
    """How many messages from the front a handler says are processed; all unless it gives a number."""
    return max(0, min(outcome, len(messages))) if isinstance(outcome, int) else len(messages)


def acknowledge(messages: Sequence[ReceivedMessage]) -> None:
    """All of these are processed."""
    for message in messages:
        message.ack()
