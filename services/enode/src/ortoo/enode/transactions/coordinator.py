"""Transactions: messages that are stored but invisible until their producer commits them.

A commit is one frame with the messages, now in their queue, and the end of the transaction. So the first verdict is
final, whatever crashes. An open transaction is checked: one producer of its group, connected to any snode, is asked for
the outcome. After the last check the transaction is parked, and an operator decides.
"""

import asyncio
import contextlib
import heapq
from collections import Counter
from collections.abc import AsyncIterator, Set
from dataclasses import replace

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Conflict, DataLoss, Invalid, NotFound, OrtooError, OutOfRange, Overloaded
from ortoo.common.groups.system_topics import HALF_TOPIC_ID
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import record_contained
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode import log_events
from ortoo.enode.changes.halves import HalfEnded, HalfOpen, HalfVerdict, VerdictOrigin
from ortoo.enode.store.batch_write import Deferral
from ortoo.enode.store.store import Store
from ortoo.enode.transactions.checks import CheckListeners, CheckSchedule, DueCheck

OPEN_MAX = 200_000
"""The number of transactions that may be open on an enode."""
CHECK_AFTER_MAX_MS = 7 * 86_400_000
IDLE_S = 60.0
"""The longest sleep while no transaction is open; the first one ends it."""
POLL_S = 1.0
"""How often the wall clock is read."""
CHECKS_AT_ONCE = 64
RESCUED_AT_ONCE = 8
"""The number of transactions, of up to 4 MiB each, that are stored again with one flush."""
STALE_CHECKS_MAX = 10_000
"""The number of planned checks of ended transactions that may remain in the heap before it is rebuilt."""
_log = get_logger("transactions")


class TransactionCoordinator:
    """The transactions of one enode."""

    def __init__(self, store: Store, background: Background, schedule: CheckSchedule, *, clock: Clock) -> None:
        """Work on `store`; the caller must spawn `run`."""
        self.listeners = CheckListeners()
        """Snodes with producers that can be asked."""
        self.ended_totals: Counter[tuple[int, HalfVerdict]] = Counter()
        """Messages of transactions that ended since the start, by topic id and verdict."""
        self._store = store
        self._halves = store.halves
        self._background = background
        self._schedule = schedule
        self._clock = clock
        self._busy: dict[object, asyncio.Event] = {}
        """Number of a transaction, or key of one that is being stored, to an event set when that operation ends."""
        self._due = self._plan_checks()
        self._unheard: dict[str, set[int]] = {}
        """Producer groups without a listener, and their transactions whose check is due. Only made checks count."""
        self.listeners.on_added = self._check_unheard
        self._nap: asyncio.Task[None] | None = None

    async def begin(
        self,
        topic_id: int,
        queue_id: int,
        batch: SealedBatch,
        *,
        producer_group: str,
        check_after_ms: int = 0,
        key: int = 0,
    ) -> HalfOpen:
        """Store messages that stay invisible until `end` commits them. A repeated `key` returns the same transaction.

        Errors: those of `Store.append`, Invalid, Overloaded, Conflict (another transaction has the key).
        """
        check_group_name(producer_group, "producer_group")
        if batch.delayed:
            raise Invalid("a message of a transaction cannot be delayed as well", field="batch.records.deliver_at_ms")
        if not 0 <= check_after_ms <= CHECK_AFTER_MAX_MS:
            raise Invalid(f"{check_after_ms}; expected 0 to {CHECK_AFTER_MAX_MS}", field="check_after_ms")
        if len(self._halves.open) >= OPEN_MAX:
            raise Overloaded(f"{OPEN_MAX} transactions are open on this enode", retry_after_ms=1_000)

        # The wait for another request with the key can be cancelled. The write behind it always completes.
        busy_key = ("key", key)
        while key and (other := self._busy.get(busy_key)) is not None:
            await other.wait()
        if (known := self._halves.of_key(key)) is not None:
            requested = (topic_id, queue_id, batch.count, producer_group)
            if (known.topic_id, known.queue_id, known.count, known.producer_group) != requested:
                raise Conflict("another transaction with this key is open; choose keys at random", field="key")
            return known
        check_ms = self._schedule.first_check_ms(self._clock.now_ms(), check_after_ms)
        requested_half = HalfOpen(0, topic_id, queue_id, 0, batch.count, 0, check_ms, 0, False, key, producer_group)
        plain = replace(batch, producer_id=0, first_sequence=0)
        done = self._busy[busy_key] = asyncio.Event()

        def half(place: int, stored_at_ms: int) -> HalfOpen:
            return replace(requested_half, number=place, place=place, stored_at_ms=stored_at_ms)

        async def store() -> HalfOpen:
            deferral = Deferral(HALF_TOPIC_ID, lambda place, stored_at_ms: (half(place, stored_at_ms),))
            try:
                stored = await self._store.append(topic_id, queue_id, plain, deferral=deferral)
            finally:
                self._busy.pop(busy_key, None)
                done.set()
            begun = half(stored.first_offset, stored.stored_at_ms)
            self._schedule_check(begun)
            return begun

        return await self._background.run_shielded("begin", store())

    async def end(self, topic_id: int, number: int, verdict: HalfVerdict, source: VerdictOrigin) -> None:
        """Commit or roll back; final when this returns. Repeating the same verdict does nothing.

        Errors: NotFound (never stored, or ended long ago), Conflict (ended with the other verdict).
        """

        async def end() -> None:
            async with self._exclusively(number):
                ended, half = self._halves.ended.get(number), self._halves.open.get(number)
                if ended is not None and ended.topic_id == topic_id:
                    if ended.verdict != verdict:
                        raise Conflict(
                            f"the transaction was {_VERDICT_NAMES[HalfVerdict(ended.verdict)]} already; the first "
                            "verdict is final",
                            field="verdict",
                        )
                    return
                if half is None or half.topic_id != topic_id:
                    raise NotFound("no such transaction: it ended long ago, or never existed", field="transaction_id")
                await self._end(half, HalfEnded(number, topic_id, verdict, source, self._clock.now_ms()))

        await self._background.run_shielded("end", end())

    async def resume(self, topic_id: int, number: int) -> None:
        """Restart the checks of a parked transaction. Errors: NotFound, Conflict (not parked)."""

        async def resume() -> None:
            async with self._exclusively(number):
                half = self._halves.open.get(number)
                if half is None or half.topic_id != topic_id:
                    raise NotFound("no such transaction is open", field="transaction_id")
                if not half.parked:
                    raise Conflict("the transaction is not parked; its checks continue", field="transaction_id")
                await self._put(self._schedule.after_resume(half, self._clock.now_ms()))

        await self._background.run_shielded("resume", resume())

    async def rescue(self, end_place: int) -> int:
        """Store every open transaction that begins below `end_place` again; returns the number of stored bytes."""
        moved_bytes, numbers = 0, [half.number for half in self._halves.in_places(0, end_place)]
        for start in range(0, len(numbers), RESCUED_AT_ONCE):
            some = map(self._move, numbers[start : start + RESCUED_AT_ONCE])
            for moved in await asyncio.gather(*some, return_exceptions=True):
                if isinstance(moved, BaseException):
                    raise moved
                moved_bytes += moved
        return moved_bytes

    @contextlib.asynccontextmanager
    async def _exclusively(self, number: int) -> AsyncIterator[None]:
        """Serialize operations on a transaction, so that each operation sees the state that the previous one left."""
        while (other := self._busy.get(number)) is not None:
            await other.wait()
        done = self._busy[number] = asyncio.Event()
        try:
            yield
        finally:
            del self._busy[number]
            done.set()

    async def run(self) -> None:
        """Run due checks for ever. A failed check is retried, and ends neither the loop nor the process."""
        while True:
            now_ms = self._clock.now_ms()
            due: list[int] = []
            while self._due and self._due[0][0] <= now_ms and len(due) < CHECKS_AT_ONCE:
                due.append(heapq.heappop(self._due)[1])
            if due:
                numbers = list(dict.fromkeys(due))
                failures = await asyncio.gather(*map(self._check, numbers), return_exceptions=True)
                for number, failure in zip(numbers, failures, strict=True):
                    if isinstance(failure, Exception):  # the other checks were still made
                        record_contained("transaction checks", failure, number=number)
                        heapq.heappush(self._due, (now_ms + int(POLL_S * 1000), number))
                continue
            wait_s = min((self._due[0][0] - now_ms) / 1000, POLL_S) if self._due else IDLE_S
            self._nap = self._background.run_contained("nap", self._clock.sleep(wait_s))
            await asyncio.wait([self._nap])
            self._nap = None

    async def _end(self, half: HalfOpen, ended: HalfEnded) -> None:
        if ended.verdict != HalfVerdict.COMMITTED:
            await self._store.change(ended)
        elif (topic := self._store.topic(half.topic_id)) is None:
            raise NotFound("the topic of the transaction is being deleted", field="transaction_id")
        else:
            batch = await self._read(half)
            await self._store.append(half.topic_id, half.queue_id % topic.queue_count, batch, consumes=(ended,))
        self.ended_totals[half.topic_id, HalfVerdict(ended.verdict)] += half.count
        if unheard := self._unheard.get(half.producer_group):
            unheard.discard(half.number)

    async def _read(self, half: HalfOpen) -> SealedBatch:
        stored = (await self._store.read_deferred(HALF_TOPIC_ID, half.place, bytes_max=1))[0]
        assert (stored.first_offset, stored.batch.count) == (half.place, half.count), "a transaction is one batch"
        return replace(stored.batch, producer_id=0, first_sequence=0)

    async def _move(self, number: int) -> int:
        async with self._exclusively(number):
            half = self._halves.open.get(number)
            if half is None or self._store.engine.state.topics.get(half.topic_id) is None:
                return 0
            try:
                batch = await self._read(half)
            except (DataLoss, OutOfRange) as error:
                _log.emit(log_events.TRANSACTION_MESSAGES_LOST, number=number, reason=str(error))
                return 0
            deferral = Deferral(HALF_TOPIC_ID, lambda place, _: (replace(half, place=place),))
            await self._store.append(half.topic_id, half.queue_id, batch, deferral=deferral)
            return len(batch.records)

    async def _check(self, number: int) -> None:
        """Have one producer asked for the outcome, if the transaction is still open and due."""
        async with self._exclusively(number):
            half, now_ms = self._halves.open.get(number), self._clock.now_ms()
            if half is None or half.parked or self._store.engine.state.topics.get(half.topic_id) is None:
                return
            if half.next_check_ms > now_ms:
                self._schedule_check(half)
                return
            if not self.listeners.has_listener(half.producer_group):
                self._wait_for_listener(half)
                return
            checked = self._schedule.after_check(half, now_ms)
            try:
                await self._put(checked)
                if checked.parked:
                    _log.emit(log_events.TRANSACTION_PARKED, number=number, group=half.producer_group)
                else:
                    self.listeners.request_check(DueCheck(checked, await self._read(checked)))
            except OrtooError as error:
                _log.emit(log_events.TRANSACTION_CHECK_FAILED_RETRYING, number=number, reason=str(error))
                heapq.heappush(self._due, (now_ms + int(POLL_S * 1000), number))

    def _wait_for_listener(self, half: HalfOpen) -> None:
        """Remember a due check until a producer connects. If there are too many, drop those of ended transactions."""
        waiting = self._unheard.setdefault(half.producer_group, set())
        waiting.add(half.number)
        if len(waiting) > len(self._halves.open) + STALE_CHECKS_MAX:
            waiting.intersection_update(self._halves.open)

    def _check_unheard(self, groups: Set[str]) -> None:
        """Schedule the checks that waited for a listener of these groups."""
        numbers = [number for group in groups for number in self._unheard.pop(group, ())]
        now_ms = self._clock.now_ms()
        for number in numbers:
            heapq.heappush(self._due, (now_ms, number))
        if numbers and self._nap is not None:
            self._nap.cancel()

    async def _put(self, half: HalfOpen) -> None:
        """Store a changed transaction. Errors: those of `Store.change`, NotFound (the topic was deleted)."""
        await self._store.engine.store([half], lambda: self._store.topic_name(half.topic_id))
        self._schedule_check(half)

    def _schedule_check(self, half: HalfOpen) -> None:
        if half.parked or half.number not in self._halves.open:
            return
        if len(self._due) > 2 * len(self._halves.open) + STALE_CHECKS_MAX:
            self._due = self._plan_checks()
        else:
            heapq.heappush(self._due, (half.next_check_ms, half.number))
        if self._due[0][1] == half.number and self._nap is not None:
            self._nap.cancel()

    def _plan_checks(self) -> list[tuple[int, int]]:
        """A heap of (time, number) of the next check of each open transaction."""
        due = [(one.next_check_ms, one.number) for one in self._halves.open.values() if not one.parked]
        heapq.heapify(due)
        return due


_VERDICT_NAMES = {HalfVerdict.COMMITTED: "committed", HalfVerdict.ROLLED_BACK: "rolled back"}
