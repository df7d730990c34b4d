"""The results of popped messages: ack, renewal of the lease, release, nack and parking."""

from collections.abc import Iterable
from dataclasses import replace

from ortoo.common.errors import OrtooError
from ortoo.common.groups.failure_rule import Again, FailureRule, Park
from ortoo.common.groups.pop import Finish, GiveBack, LeasePart, Renew, Stale, Verdict, merged, runs
from ortoo.common.process.clock import Clock
from ortoo.enode.changes.kinds import Change
from ortoo.enode.changes.pops import Delivered, PopFinished, PopLeased, PopReturned
from ortoo.enode.pops.lines import GroupLine, GroupLines
from ortoo.enode.pops.parking import PARK_LEASE_MS, DeadLetter, Parking, noted
from ortoo.enode.state.tables.pops import FinishReason
from ortoo.enode.store.store import Store


class Settling:
    """Applies verdicts: first to the lines, then to the log."""

    def __init__(self, store: Store, parking: Parking, clock: Clock) -> None:
        """Write into `store`."""
        self._store = store
        self._parking = parking
        self._clock = clock

    async def settle(self, group: GroupLines, parts: Iterable[LeasePart], verdict: Verdict) -> list[Stale]:
        """Apply one verdict; returns messages that the lease no longer holds. Errors: as `Leasing.settle`."""
        over: list[Stale] = []
        parts = [self._in_time(group, part, verdict, over) if part.in_time else part for part in parts]
        if isinstance(verdict, Finish):
            return over + await self._finish(group, parts, verdict)
        if isinstance(verdict, Renew):
            return over + await self._renew(group, parts, verdict)
        return over + await self._give_back(group, parts, verdict)

    def _in_time(self, group: GroupLines, part: LeasePart, verdict: Verdict, over: list[Stale]) -> LeasePart:
        """The part without messages whose lease expired; these are added to `over`."""
        line = group.line(part.queue_id)
        late = line.over(part.ranges, part.number, group.now_ms(), with_done=not isinstance(verdict, Finish))
        if not late:
            return part
        over += _stale(part, late)
        offsets = (offset for first, count in part.ranges for offset in range(first, first + count))
        return replace(part, ranges=runs(tuple(offset for offset in offsets if offset not in late)))

    async def _finish(self, group: GroupLines, parts: Iterable[LeasePart], verdict: Finish) -> list[Stale]:
        reason = FinishReason.FILTERED if verdict.filtered else FinishReason.ACKNOWLEDGED
        changes: list[Change] = []
        stale: list[Stale] = []
        for part in parts:
            line = group.line(part.queue_id)
            settled = line.finish(part.ranges, part.number)
            stale += _stale(part, settled.stale)
            if settled.rows:
                changes.append(PopFinished(*line.place, reason, tuple(merged(row[:2] for row in settled.rows))))
        await self._write(group, changes)
        if group.in_order or group.blocked:
            group.wake()
        return stale

    async def _renew(self, group: GroupLines, parts: Iterable[LeasePart], verdict: Renew) -> list[Stale]:
        changes: list[Change] = []
        stale: list[Stale] = []
        times = (self._clock.now_ms() + verdict.invisible_ms, verdict.invisible_ms)
        for part in parts:
            line = group.line(part.queue_id)
            settled = line.renew(part.ranges, part.number, group.now_ms(), verdict.invisible_ms)
            stale += _stale(part, settled.stale)
            if settled.rows:
                changes.append(PopLeased(*line.place, part.number, *times, tuple(settled.rows)))
        try:
            await self._store.engine.note(changes)
        except OrtooError:
            group.forget()
            raise
        group.plan()
        return stale

    async def _give_back(self, group: GroupLines, parts: Iterable[LeasePart], how: GiveBack) -> list[Stale]:
        changes: list[Change] = []
        stale: list[Stale] = []
        parking: list[tuple[GroupLine, int, list[DeadLetter]]] = []
        rule = FailureRule(how.rules.attempts_max, how.delays_ms)
        for part in parts:
            line = group.line(part.queue_id)
            owned = line.attempts(part.ranges, part.number)
            stale += _stale(part, owned.stale)
            letters = list[DeadLetter]()
            for row in owned.rows:
                first, count, attempt = row
                match rule.after(max(attempt, how.attempt), counts=how.counts, park=how.park):
                    case Park(reason, attempts):
                        line.renew([(first, count)], part.number, group.now_ms(), PARK_LEASE_MS)
                        letters += [
                            DeadLetter(offset, attempts, reason, how.consumer, how.error)
                            for offset in range(first, first + count)
                        ]
                    case Again(delay_ms):
                        changes += self._returned(line, part.number, row, delay_ms, how)
            if letters:
                parking.append((line, part.number, letters))
        await self._write(group, changes)
        for line, number, letters in parking:
            if how.park:
                await self._parking.park(line, letters, how.rules)
            else:
                await self._parking.park_or_return(line, number, letters, how.rules)
        group.wake()
        group.plan()
        return stale

    def _returned(self, line: GroupLine, number: int, row: Delivered, delay_ms: int, how: GiveBack) -> list[Change]:
        settled = line.give_back([row[:2]], number, line.group.now_ms(), delay_ms, counts=how.counts)
        until_ms = self._clock.now_ms() + delay_ms
        changes: list[Change] = [PopReturned(*line.place, number, until_ms, delay_ms, tuple(settled.rows))]
        if how.counts:
            offsets = (offset for first, count, _ in settled.rows for offset in range(first, first + count))
            changes += noted(line, offsets, how.consumer, how.error)
        return changes

    async def _write(self, group: GroupLines, changes: list[Change]) -> None:
        """Return when `changes` are durable. If they are refused, the lines are made again without them.

        Without changes, wait for earlier ones: a repeated verdict must not be confirmed before the first is durable.
        """
        try:
            if changes:
                await self._store.engine.store(changes)
            else:
                await self._store.engine.appender.caught_up()
        except OrtooError:
            group.forget()
            raise


def _stale(part: LeasePart, offsets: Iterable[int]) -> list[Stale]:
    return [Stale(part.queue_id, offset, part.number) for offset in offsets] if part.is_exact else []
