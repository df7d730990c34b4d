"""The results of popped messages: ack, renewal of the lease, release, nack and parking."""

from collections.abc import Iterable
from dataclasses import replace

from ortoo.common.errors import OrtooError
from ortoo.common.groups.failure_rule import FailureRule, Park, Retry
from ortoo.common.groups.pop import (
    Finish,
    LeasePart,
    LeaseVerdict,
    Redeliver,
    Renew,
    StaleMessage,
    merge_ranges,
    ranges_of,
)
from ortoo.common.process.clock import Clock
from ortoo.enode.changes.kinds import StateChange
from ortoo.enode.changes.pops import Delivered, PopFinished, PopLeased, PopReturned
from ortoo.enode.pops.lines import GroupLine, GroupLines, PopLines
from ortoo.enode.pops.parking import PARK_LEASE_MS, ParkedMessage, Parker, record_notes
from ortoo.enode.state.tables.pops import FinishReason
from ortoo.enode.store.store import Store


class LeaseSettlement:
    """Applies the results of popped messages (`LeaseVerdict`): first to the pop lines, then to the log."""

    def __init__(self, store: Store, lines: PopLines, parking: Parker, clock: Clock) -> None:
        """Write into `store`."""
        self._store = store
        self._lines = lines
        self._parking = parking
        self._clock = clock

    async def settle(self, group: GroupLines, parts: Iterable[LeasePart], verdict: LeaseVerdict) -> list[StaleMessage]:
        """Apply one verdict; returns messages that the lease no longer holds. Errors: those of `PopLeasing.settle`."""
        if isinstance(verdict, Finish):
            return await self._finish(group, parts, verdict)
        expired: list[StaleMessage] = []
        parts = [self._drop_expired(group, part, expired) if part.unexpired_only else part for part in parts]
        if isinstance(verdict, Renew):
            return expired + await self._renew(group, parts, verdict)
        return expired + await self._redeliver(group, parts, verdict)

    def _drop_expired(self, group: GroupLines, part: LeasePart, expired: list[StaleMessage]) -> LeasePart:
        """The part without finished messages and those whose lease expired. These are added to `expired`."""
        line = group.get_line(part.queue_id)
        late = line.expired_or_finished(part.ranges, part.number, group.now_ms())
        if not late:
            return part
        expired += _stale_messages(part, late)
        offsets = (offset for first, count in part.ranges for offset in range(first, first + count))
        return replace(part, ranges=ranges_of(tuple(offset for offset in offsets if offset not in late)))

    async def _finish(self, group: GroupLines, parts: Iterable[LeasePart], verdict: Finish) -> list[StaleMessage]:
        reason = FinishReason.FILTERED if verdict.filtered else FinishReason.ACKNOWLEDGED
        finished: dict[int, list[tuple[int, int]]] = {}
        stale: list[StaleMessage] = []
        for part in parts:
            now_ms = group.now_ms() if part.unexpired_only else None
            settled = group.get_line(part.queue_id).finish(part.ranges, part.number, now_ms)
            stale += _stale_messages(part, settled.stale)
            if settled.rows:
                finished.setdefault(part.queue_id, []).extend([row[:2] for row in settled.rows])
        await self._write(
            group,
            [
                PopFinished(*group.get_line(queue_id).place, reason, tuple(merge_ranges(ranges)))
                for queue_id, ranges in finished.items()
            ],
        )
        if group.in_order or group.blocked:
            group.wake_one()
        return stale

    async def _renew(self, group: GroupLines, parts: Iterable[LeasePart], verdict: Renew) -> list[StaleMessage]:
        changes: list[StateChange] = []
        stale: list[StaleMessage] = []
        times = (self._clock.now_ms() + verdict.invisible_ms, verdict.invisible_ms)
        for part in parts:
            line = group.get_line(part.queue_id)
            settled = line.renew(part.ranges, part.number, group.now_ms(), verdict.invisible_ms)
            stale += _stale_messages(part, settled.stale)
            if settled.rows:
                changes.append(PopLeased(*line.place, part.number, *times, tuple(settled.rows)))
        try:
            await self._store.engine.store_without_waiting(changes)
        except OrtooError:
            group.reset()
            raise
        group.plan_wake_up()
        return stale

    async def _redeliver(
        self, group: GroupLines, parts: Iterable[LeasePart], redeliver: Redeliver
    ) -> list[StaleMessage]:
        changes: list[StateChange] = []
        stale: list[StaleMessage] = []
        parking: list[tuple[GroupLine, int, list[ParkedMessage]]] = []
        rule = FailureRule(redeliver.rules.attempts_max, redeliver.delays_ms)
        for part in parts:
            line = group.get_line(part.queue_id)
            if part.any_lease and redeliver.park:
                part = self._claim(line, part, redeliver.consumer)
            owned = line.owned_attempts(part.ranges, part.number)
            stale += _stale_messages(part, owned.stale)
            letters = list[ParkedMessage]()
            for row in owned.rows:
                first, count, attempt = row
                match rule.after_attempt(max(attempt, redeliver.attempt), counts=redeliver.counts, park=redeliver.park):
                    case Park(reason, attempts):
                        line.renew([(first, count)], part.number, group.now_ms(), PARK_LEASE_MS)
                        letters += [
                            ParkedMessage(offset, attempts, reason, redeliver.consumer, redeliver.error)
                            for offset in range(first, first + count)
                        ]
                    case Retry(delay_ms):
                        changes += self._redelivery_changes(line, part.number, row, delay_ms, redeliver)
            if letters:
                parking.append((line, part.number, letters))
        await self._write(group, changes)
        for line, number, letters in parking:
            if redeliver.park:
                await self._parking.park(line, letters, redeliver.rules)
            else:
                await self._parking.park_or_return(line, number, letters, redeliver.rules)
        group.wake_one()
        group.plan_wake_up()
        return stale

    def _claim(self, line: GroupLine, part: LeasePart, consumer: str) -> LeasePart:
        """The unfinished messages of a part under a new lease.

        Until they are parked, no consumer receives them, and acknowledgements under earlier leases are refused.
        """
        number = self._lines.next_number()
        rows = line.renew_lease_as(part, number, line.group.now_ms(), PARK_LEASE_MS)
        line.group.record_lease(number, consumer)
        return replace(part, number=number, ranges=tuple(row[:2] for row in rows))

    def _redelivery_changes(
        self, line: GroupLine, number: int, row: Delivered, delay_ms: int, redeliver: Redeliver
    ) -> list[StateChange]:
        settled = line.redeliver([row[:2]], number, line.group.now_ms(), delay_ms, counts=redeliver.counts)
        until_ms = self._clock.now_ms() + delay_ms
        changes: list[StateChange] = [PopReturned(*line.place, number, until_ms, delay_ms, tuple(settled.rows))]
        if redeliver.counts:
            offsets = (offset for first, count, _ in settled.rows for offset in range(first, first + count))
            changes += record_notes(line, offsets, redeliver.consumer, redeliver.error)
        return changes

    async def _write(self, group: GroupLines, changes: list[StateChange]) -> None:
        """Return when `changes` are durable. If the log refuses them, the lines are made again from the folded state.

        Without changes, wait for all earlier changes: a repeated verdict is confirmed only when the first one is
        durable.
        """
        try:
            if changes:
                await self._store.engine.store(changes)
            else:
                await self._store.engine.appender.wait_committed()
        except OrtooError:
            group.reset()
            raise


def _stale_messages(part: LeasePart, offsets: Iterable[int]) -> list[StaleMessage]:
    return [StaleMessage(part.queue_id, offset, part.number) for offset in offsets] if part.is_exact else []
