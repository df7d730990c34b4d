"""Handlers that get the messages of each queue one after another."""

import enum
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from ortoo.client.core.handlers import RetryLater, Tries, named
from ortoo.client.core.received import ReceivedMessage
from ortoo.client.pull.group_member import GroupMember
from ortoo.client.pull.process_queue import ProcessQueue
from ortoo.client.pull.settings import Handling
from ortoo.common.errors import OrtooError
from ortoo.common.process.clock import Clock
from ortoo.common.process.logs import get_logger
from ortoo.v1 import pull_pb2

SUSPEND_MIN_MS = 10.0
SUSPEND_MS = 1_000.0
"""How long a queue waits while nobody can be asked."""
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
GiveBack = Callable[[ProcessQueue, Sequence[ReceivedMessage], Exception, int], Awaitable[pull_pb2.SendBackResponse]]


@dataclass(eq=False, slots=True)
class OrderedHandling:
    """What is done with messages of a queue that nobody else touches meanwhile."""

    member: GroupMember
    handler: Processed
    give_back: GiveBack
    """Says how often messages failed, and hears whether they wait or are parked."""
    clock: Clock
    handling: Handling
    _kept: dict[ProcessQueue, list[ReceivedMessage]] = field(default_factory=dict)
    """Processed and not committed, by queue."""
    _tries: Tries = field(default_factory=Tries)

    async def handle(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Process messages before anything else of the queue, however often it takes; each is committed when done.

        One at a time. With `manual_commit` the handler says when what is processed is committed, or comes again.
        """
        waiting = list(messages)
        while waiting and not queue.is_dropped:
            if not self.member.may_process(queue):
                await self._pause(self._pause_ms)
                continue
            self._tries.begin(waiting[0])
            try:
                outcome = await self.handler(waiting[:1])
            except Exception as error:
                wait_ms = await self._failed(queue, waiting[0], error)
                if wait_ms is None:
                    acknowledge(waiting[:1])
                    waiting = waiting[1:]
                else:
                    await self._pause(max(wait_ms, SUSPEND_MIN_MS))
                continue
            self._tries.forget(waiting[0])
            if self.handling.manual_commit:
                waiting = self._obey(outcome, queue, waiting)
                if waiting and outcome is CommitVerdict.ROLL_BACK:
                    await self._pause(self._pause_ms)
            else:
                acknowledge(waiting[:1])
                waiting = waiting[1:]
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

    async def _failed(self, queue: ProcessQueue, message: ReceivedMessage, failure: Exception) -> float | None:
        """How long the queue waits for the next try; None when the message was parked."""
        where = named(self.member.group, message)
        if not isinstance(failure, RetryLater):
            _log.error("a handler failed; its queue waits", exc_info=failure, **where)
        tries = self._tries.failed(message)
        if not isinstance(failure, RetryLater) or failure.counts:
            self._tries.keep(message, tries)
        if self.member.settings.broadcast:
            return self._dropped(failure, tries, where)
        try:
            answer = await self.give_back(queue, [message], failure, tries)
        except OrtooError as error:
            _log.warning("a failed message stays here", reason=str(error), **where)
            return self._pause_ms
        if answer.parked:
            self._tries.forget(message)
            return None
        if isinstance(failure, RetryLater) and (failure.delay_ms is not None or failure.delay_level):
            return float(answer.delay_ms)
        return self.handling.suspend_ms if self.handling.suspend_ms is not None else float(answer.delay_ms)

    def _dropped(self, failure: Exception, tries: int, where: dict[str, object]) -> float | None:
        """A broadcast has no dead letters, and its back-off is this consumer's own."""
        if 0 < self.handling.attempts_max <= tries:
            _log.warning("a failed message of a broadcast is dropped", **where)
            return None
        is_told = isinstance(failure, RetryLater) and failure.delay_ms is not None
        return failure.delay_ms if is_told and isinstance(failure, RetryLater) else self._pause_ms

    @property
    def _pause_ms(self) -> float:
        return SUSPEND_MS if self.handling.suspend_ms is None else self.handling.suspend_ms

    async def _pause(self, wait_ms: float) -> None:
        await self.clock.sleep(wait_ms / 1000)


def processed_count(outcome: object, messages: Sequence[ReceivedMessage]) -> int:
    """How many messages from the front a handler says are processed; all unless it gives a number."""
    return max(0, min(outcome, len(messages))) if isinstance(outcome, int) else len(messages)


def acknowledge(messages: Sequence[ReceivedMessage]) -> None:
    """All of these are processed."""
    for message in messages:
        message.ack()
