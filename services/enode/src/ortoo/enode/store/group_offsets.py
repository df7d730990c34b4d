"""The committed offsets of groups: checks, stores and returns them. Trims of queues, and accounts of sinks."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakValueDictionary

from ortoo.common.errors import Conflict, Fenced, Invalid
from ortoo.common.groups.sinks import SinkAccount, SinkIdentity, is_sink_group
from ortoo.common.logs.logger import get_logger
from ortoo.enode import log_events
from ortoo.enode.changes.groups import RetryMarksDropped
from ortoo.enode.changes.kinds import OffsetsCommitted, QueueTrimmed, SinkCommitted, StateChange
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.store.engine import Engine
from ortoo.enode.store.queue_locks import DurableQueueLocks

GROUP_NAME_BYTES_MAX = 255
EVERYTHING = -1
"""The offset of a trim of all messages that the enode has accepted."""
_log = get_logger("offsets")


class _CommittedMeanwhileError(Conflict):
    """The group committed an offset while a reset waited for room in the log."""


class GroupOffsets:
    """The committed offset of each group in each queue: queue id to next offset."""

    def __init__(self, engine: Engine, locks: DurableQueueLocks, check_topic: Callable[[int], object]) -> None:
        """`check_topic` raises NotFound for a topic id that this enode does not have."""
        self._engine = engine
        self._locks = locks
        self._check_topic = check_topic
        self.backward_commits = 0
        """Backward commits of queues since the start, without resets by operators."""
        self._in_flight: dict[tuple[int, str], list[Mapping[int, int]]] = {}
        """By topic id and group: the accepted commits and resets that are not durable yet, in their order."""

    async def commit(
        self,
        topic_id: int,
        group: str,
        offsets: Mapping[int, int],
        generation: int = 0,
        extra_changes: Sequence[StateChange] = (),
    ) -> None:
        """Store the offsets of `group` together with `extra_changes`. Returns when all is durable.

        A smaller offset replaces a larger one. `generation` 0 is not compared. A generation older than the queue's
        stored generation or its lock is refused, and nothing is stored.
        Errors: NotFound, Invalid (negative offset), Fenced (older generation), Overloaded, Unavailable.
        """
        await self._store_offsets(topic_id, group, {generation: offsets} if offsets else {}, extra_changes)

    async def _store_offsets(
        self,
        topic_id: int,
        group: str,
        by_generation: Mapping[int, Mapping[int, int]],
        extra_changes: Sequence[StateChange] = (),
    ) -> None:
        """Store offsets, grouped by the generation of their commit, all or none. Errors: those of `commit`."""
        offsets = {queue_id: offset for part in by_generation.values() for queue_id, offset in part.items()}
        self._check(topic_id, group, offsets)
        if not offsets:
            return
        rows = sorted(by_generation.items())
        changes = [OffsetsCommitted(topic_id, group, number, tuple(sorted(part.items()))) for number, part in rows]

        def check() -> None:
            self._check_topic(topic_id)
            for generation, part in rows:
                for queue_id in part:
                    self._check_generation(topic_id, group, queue_id, generation)
            for generation, part in rows:
                self._engine.committer.reservations.reserve(topic_id, group, part, generation)
            self._in_flight.setdefault((topic_id, group), []).append(offsets)

        stored = self._engine.state.offsets.of(topic_id, group, offsets)
        try:
            await self._engine.store([*extra_changes, *changes], check)
        finally:
            self._end_in_flight((topic_id, group), offsets)
        for queue_id, offset in offsets.items():
            if offset < (before := stored.get(queue_id, offset)) and not is_sink_group(group):
                self.backward_commits += 1
                _log.emit(
                    log_events.GROUP_OFFSET_RESET_BACKWARD,
                    group=group,
                    topic_id=topic_id,
                    queue_id=queue_id,
                    before=before,
                    now=offset,
                )

    async def commit_each(
        self, topic_id: int, group: str, rows: Iterable[tuple[int, int, int]], extra_changes: Sequence[StateChange] = ()
    ) -> list[int]:
        """Store offsets, each (queue id, next offset, generation), together with `extra_changes`.

        Returns the queues whose generation is too old or was not issued by this log. Their offsets are not stored.
        The other offsets are stored together or not at all.

        Errors: those of `commit`. Fenced when all offsets are refused.
        """
        fenced: dict[int, Fenced] = {}
        current = self._current_rows(topic_id, group, rows, fenced)
        while True:
            if fenced and not current:
                raise [*fenced.values()][-1]
            by_generation: dict[int, dict[int, int]] = {}
            for queue_id, offset, generation in current:
                by_generation.setdefault(generation, {})[queue_id] = offset
            try:
                await self._store_offsets(topic_id, group, by_generation, extra_changes)
                return list(fenced)
            except Fenced:  # while this waited for room in the log, a lock got a newer generation
                checked, current = current, self._current_rows(topic_id, group, current, fenced)
                if len(current) == len(checked):
                    raise

    def _current_rows(
        self, topic_id: int, group: str, rows: Iterable[tuple[int, int, int]], fenced: dict[int, Fenced]
    ) -> list[tuple[int, int, int]]:
        """The rows whose generation is current; the errors of the others are added to `fenced`."""
        current = []
        for queue_id, offset, generation in rows:
            try:
                self._locks.table.check_generation((topic_id, group, queue_id), generation, must_match=True)
                self._check_generation(topic_id, group, queue_id, generation)
            except Fenced as error:
                fenced[queue_id] = error
            else:
                current.append((queue_id, offset, generation))
        return current

    def _end_in_flight(self, place: tuple[int, str], offsets: Mapping[int, int]) -> None:
        """Forget a commit that was stored, or failed, or was refused before it was in flight."""
        waiting = self._in_flight.get(place, [])
        remaining = [one for one in waiting if one is not offsets]
        if remaining:
            self._in_flight[place] = remaining
        elif waiting:
            del self._in_flight[place]

    def newest(self, topic_id: int, group: str, queue_id: int) -> int:
        """The newest accepted offset of a group in a queue, durable or not; -1 = none."""
        for offsets in reversed(self._in_flight.get((topic_id, group), ())):
            if queue_id in offsets:
                return offsets[queue_id]
        return self._engine.state.offsets.of(topic_id, group, (queue_id,)).get(queue_id, -1)

    async def reset(self, topic_id: int, group: str, offsets: Mapping[int, int], *, forward_only: bool = False) -> None:
        """Store an operator's offsets. The holders of the queues' locks must take their locks again.

        `forward_only` leaves out queues in which the group has accepted the same or a larger offset meanwhile.
        Errors: those of `commit`.
        """
        self._check(topic_id, group, offsets)

        def moving() -> dict[int, int]:
            return {
                queue_id: offset
                for queue_id, offset in offsets.items()
                if not forward_only or self.newest(topic_id, group, queue_id) < offset
            }

        while moved := moving():
            try:
                await self._store_reset(topic_id, group, moved, moving)
            except _CommittedMeanwhileError:
                continue
            return

    async def _store_reset(
        self, topic_id: int, group: str, offsets: Mapping[int, int], moving: Callable[[], Mapping[int, int]]
    ) -> None:
        """Store an operator's offsets, if they are still the result of `moving` when the log has room for them."""

        def commits(generations: Mapping[tuple[int, str, int], int]) -> list[StateChange]:
            keys = generations.items()
            moved = [OffsetsCommitted(topic_id, group, number, ((key[2], offsets[key[2]]),)) for key, number in keys]
            return [*moved, RetryMarksDropped(topic_id, group, tuple(sorted(offsets)))]

        def check() -> None:
            if moving() != offsets:
                raise _CommittedMeanwhileError
            self._in_flight.setdefault((topic_id, group), []).append(offsets)

        try:
            await self._locks.fence([(topic_id, group, queue_id) for queue_id in offsets], commits, check)
        finally:
            self._end_in_flight((topic_id, group), offsets)

    def of(self, topic_id: int, group: str, queue_ids: Iterable[int] = ()) -> dict[int, int]:
        """Offsets that `group` committed, by queue id; queues without an offset are absent. Empty `queue_ids` = all.

        Errors: NotFound (topic).
        """
        self._check_topic(topic_id)
        self._engine.record_read(topic_id, group)
        return self._engine.state.offsets.of(topic_id, group, queue_ids)

    def groups(self, topic_id: int) -> list[str]:
        """Groups with an offset in this topic, sorted."""
        return self._engine.state.offsets.groups(topic_id)

    def _check(self, topic_id: int, group: str, offsets: Mapping[int, int]) -> None:
        self._check_topic(topic_id)
        if not group or len(group.encode()) > GROUP_NAME_BYTES_MAX:
            raise Invalid(f"expected 1 to {GROUP_NAME_BYTES_MAX} bytes", field="group")
        for queue_id, offset in offsets.items():
            if not 0 <= offset < 1 << 62 or not 0 <= queue_id < 1 << 32:
                raise Invalid(f"offset {offset} of queue {queue_id}; expected 0 or more", field="offsets")

    def _check_generation(self, topic_id: int, group: str, queue_id: int, generation: int) -> None:
        self._locks.table.check_generation((topic_id, group, queue_id), generation)
        self._engine.committer.reservations.check(self._engine.state.offsets, topic_id, group, (queue_id,), generation)


class TrimmedQueue(NamedTuple):
    """A queue after a trim."""

    queue_id: int
    previous_begin_offset: int
    begin_offset: int
    end_offset: int


class QueueTrims:
    """Trims queues of topics."""

    def __init__(self, engine: Engine, locks: DurableQueueLocks, find_topic: Callable[[int], TopicCopy]) -> None:
        """`find_topic` raises NotFound for a topic id that this enode does not have."""
        self._engine = engine
        self._locks = locks
        self._find_topic = find_topic

    async def trim(self, topic_id: int, offsets: Mapping[int, int]) -> list[TrimmedQueue]:
        """Make messages unreadable, by queue id to the first offset that stays; returns when that is durable.

        An offset beyond the end counts as the end, and `EVERYTHING` is the end. An offset below the begin changes
        nothing. Groups behind the new begin continue there: their locks are fenced, so that connected consumers drop
        what they have read ahead. Errors: NotFound (topic), Invalid (offset), Overloaded, Unavailable.
        """
        topic, catalog = self._find_topic(topic_id), self._engine.catalog
        for queue_id, offset in offsets.items():
            if not EVERYTHING <= offset < 1 << 62 or not 0 <= queue_id < topic.queue_count:
                raise Invalid(
                    f"offset {offset} of queue {queue_id}; expected 0 or more, of a queue below {topic.queue_count}",
                    field="queues",
                )
        queues = {queue_id: catalog.queue((topic_id, queue_id)) for queue_id in sorted(offsets)}
        before = {queue_id: queue.begin_offset for queue_id, queue in queues.items()}
        begins: dict[int, int] = {}
        for queue_id, queue in queues.items():
            # The accepted messages come before the change in the log, so that the new begin is never beyond the end.
            wanted = queue.next_offset if offsets[queue_id] == EVERYTHING else min(offsets[queue_id], queue.next_offset)
            if wanted > queue.begin_offset:
                begins[queue_id] = wanted
        if begins:
            changes: Sequence[StateChange] = [QueueTrimmed(topic_id, *row) for row in begins.items()]
            await self._locks.fence(self._locks_behind(topic_id, begins), lambda _: list(changes))
            messages = sum(begin - before[queue_id] for queue_id, begin in begins.items())
            _log.emit(log_events.TOPIC_TRIMMED, topic=topic.name, queues=len(begins), messages=messages)
        return [
            TrimmedQueue(queue_id, before[queue_id], queue.begin_offset, queue.end_offset)
            for queue_id, queue in queues.items()
        ]

    def _locks_behind(self, topic_id: int, begins: Mapping[int, int]) -> list[tuple[int, str, int]]:
        """The locks of the groups whose offset is below the new begin of a queue, without groups that pop."""
        state = self._engine.state
        return [
            (topic_id, group, queue_id)
            for group, rows in state.offsets.of_topic(topic_id).items()
            for queue_id, begin in begins.items()
            if queue_id in rows and rows[queue_id][0] < begin and state.pops.get((topic_id, group, queue_id)) is None
        ]


@dataclass(frozen=True, slots=True)
class StoredSink:
    """An account, as the offset of its group in queue 0."""

    topic_id: int
    group: str
    offset: int
    sink: SinkIdentity | None
    """None if only older versions have written the account."""
    changed_at_ms: int
    """0 = unknown."""


FORMER_ACCOUNTS = 1 << 31
"""The first queue id, beyond those of queues, of the former accounts of a sink."""


def _former(account: SinkAccount) -> int:
    """The queue id whose offset is the account of a query that was reset, after another query took the sink over."""
    return FORMER_ACCOUNTS + account.query_mark


class SinkAccounts:
    """The account of each sink in each topic. Changes of one account are made one after another.

    The accounts of all queries that were reset are kept, so that none of them continues after a later reset.
    """

    def __init__(self, engine: Engine, offsets: GroupOffsets) -> None:
        """`offsets` stores the accounts."""
        self._engine = engine
        self._offsets = offsets
        self._changing = WeakValueDictionary[tuple[int, str], asyncio.Lock]()

    async def commit(self, topic_id: int, group: str, offsets: Mapping[int, int], sink: SinkIdentity | None) -> None:
        """Store a commit or a reset of an account, given as the offset of each queue. Returns when it is durable.

        Errors: Conflict for a query that was reset, another query or an older batch. Those of `GroupOffsets.commit`.
        """
        lock = self._changing.setdefault((topic_id, group), asyncio.Lock())
        async with lock:
            stored = self._offsets.of(topic_id, group)
            following: dict[int, int] = {}
            for queue_id, offset in offsets.items():
                account = SinkAccount.from_offset(offset)
                for former in (stored.get(_former(account)), stored.get(queue_id)):
                    if former is not None:
                        before = SinkAccount.from_offset(former)
                        account = before.successor(account)
                        if account.query_mark != before.query_mark:
                            following[_former(before)] = before.offset
                following[queue_id] = account.offset
            known = self._engine.state.sinks.of(topic_id, group)
            if sink is None and known is not None:  # of an older client
                sink = SinkIdentity(known.sink_id)
            changed_at_ms = self._engine.clock.now_ms()
            named = [SinkCommitted(topic_id, group, changed_at_ms, sink.sink_id, sink.query_id)] if sink else []
            await self._offsets.commit(topic_id, group, following, extra_changes=named)

    def list_all(self, topic_id: int = 0) -> Iterator[StoredSink]:
        """The accounts in a topic, sorted by topic and group; 0 = in all topics."""
        state = self._engine.state
        found = [
            (topic, group, rows[0][0])
            for topic, group, rows in state.offsets.entries()
            if is_sink_group(group) and topic_id in (0, topic) and 0 in rows
        ]
        for topic, group, offset in sorted(found):
            known = state.sinks.of(topic, group)
            sink = SinkIdentity(known.sink_id, known.query_id) if known is not None else None
            changed_at_ms = known.changed_at_ms if known else state.groups.last_used_ms(topic, group) or 0
            yield StoredSink(topic, group, offset, sink, changed_at_ms)
