"""A long random schedule of pops against the simplest model: one row a message.

    python -m ortoo.verification.runs.pop_schedule --steps 1000000          # prints its seed and counts
    python -m ortoo.verification.runs.pop_schedule --steps 5000 --seed 7     # repeats one schedule

Consumers pop, acknowledge, release, renew, forget and answer late. The process crashes, loses unflushed changes, and
starts again from a checkpoint and the log behind it. After every step:

* A delivered message had no lease and was unfinished. In order, all earlier ones of its message group are finished.
* Its attempt is one more than the number of its deliveries in the log.
* A message whose acknowledgement was synced never comes back.
* A pop that finds less than requested leaves nothing deliverable behind.

At the end everything is finished.
"""

import argparse
import sys
from dataclasses import dataclass, field

from ortoo.common.groups.pop import ranges_of
from ortoo.common.process.randomness import Randomness
from ortoo.enode.changes.kinds import OffsetsCommitted, StateChange, decode_changes, encode_changes
from ortoo.enode.changes.pops import OPENING_SHIFT, LeasesInvalidated, PopFinished, PopLeased, PopReturned
from ortoo.enode.pops.line import PopLine, TakeResult
from ortoo.enode.recovery.restored import OPENINGS_GAP
from ortoo.enode.state.fold import State
from ortoo.enode.state.tables.pops import FinishReason, PopQueue
from ortoo.verification.runs.pop_model import Counts, EarlierEnd, HeldLease, PopViolation, Row

TOPIC, GROUP, QUEUE = 7, "billing", 3
INVISIBLE_MS = 1_000
ATTEMPTS_MAX = 4
UNFINISHED_MAX = 120
"""The schedule stores no messages above this number of unfinished ones, because the model would be slow."""


@dataclass
class PopSchedule:
    """One run, decided by a seed."""

    seed: int
    in_order: bool = False
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        """Start on an empty queue."""
        self._chance = Randomness(self.seed)
        self._now_ms = 1_000
        self._wall_ms = 1_700_000_000_000
        self._end = 0
        self._opening = 1
        self._serial = 0
        self._first_lease = 0
        self._keys: list[str | None] = []
        self._message_ids: list[int] = []
        """By offset. Ids are never used again."""
        self._messages = 0
        self._earlier: EarlierEnd | None = None
        self._live: dict[int, Row] = {}
        self._durable: dict[int, Row] = {}
        self._changed: dict[int, None] = {}
        self._leases: list[HeldLease] = []
        self._log: list[StateChange] = []
        self._pending: list[StateChange] = []
        self._checkpoint: tuple[bytes, int] | None = None
        self._state = State()
        self._write(OffsetsCommitted(TOPIC, GROUP, 0, ((QUEUE, 0),)))
        self._flush()
        self._line = self._started()

    def run(self, steps: int) -> Counts:
        """Do `steps` steps, then finish everything. Errors: Broken, naming the step."""
        actions = (
            [self._store] * 14 + [self._pop] * 30 + [self._acknowledge] * 26 + [self._redeliver] * 8
            + [self._renew] * 6 + [self._pass_time] * 8 + [self._flush] * 20 + [self._forget] * 2
            + [self._take_checkpoint, self._remember]
        )  # fmt: skip
        try:
            for _ in range(steps):
                self.counts.steps += 1
                if self._chance.below(500) == 0:
                    self._crash()
                elif self._chance.below(1000) == 0:
                    self._flush()
                    self._restart()
                elif self._earlier is not None and self._chance.below(1000) == 0:
                    self._lose_end(self._earlier)
                actions[self._chance.below(len(actions))]()
            self._drain()
        except PopViolation as error:
            raise PopViolation(f"seed {self.seed}, step {self.counts.steps}: {error}") from None
        return self.counts

    # Events.

    def _store(self) -> None:
        if len(self._live) < UNFINISHED_MAX:
            for _ in range(1 + self._chance.below(12)):
                key = f"k{self._chance.below(9)}" if self._chance.below(4) else None
                self._keys.append(key)
                self._messages += 1
                self._message_ids.append(self._messages)
                self._live[self._end] = Row()
                self._durable[self._end] = Row()
                self._end += 1

    def _pop(self) -> None:
        self._serial += 1
        number = (self._opening << OPENING_SHIFT) + self._serial
        room = 1 + self._chance.below(16)
        line = self._line
        lease = HeldLease(number, [])
        while room:
            taken = line.take(
                self._now_ms, room, self._end, number=number, duration_ms=INVISIBLE_MS, attempts_max=ATTEMPTS_MAX
            )
            self._took(taken, lease)
            found = sum(count for _, count, _ in taken.rows + taken.exhausted)
            room -= found
            if room and line.needs_message_groups(self._end):
                line.add_message_groups(line.cursor, self._keys[line.cursor : line.cursor + 5])
            elif not found:
                self._check_nothing_left()
                break
        if lease.offsets:
            self._leases.append(lease)

    def _took(self, taken: TakeResult, lease: HeldLease) -> None:
        number = lease.number
        for first, count, attempt in taken.rows:
            for offset in range(first, first + count):
                self._check_delivery(offset, attempt, exhausted=False)
                lease.offsets.append(offset)
                lease.message_ids[offset] = self._message_ids[offset]
                row = self._row(offset)
                row.attempt, row.number, row.leased, row.until_ms = attempt, number, True, self._now_ms + INVISIBLE_MS
                self.counts.delivered += 1
                self.counts.redelivered += attempt > 1
        for first, count, attempt in taken.exhausted:
            for offset in range(first, first + count):
                self._check_delivery(offset, attempt, exhausted=True)
        if taken.rows:
            wall_ms = self._wall_ms + INVISIBLE_MS
            self._write(PopLeased(TOPIC, GROUP, QUEUE, number, wall_ms, INVISIBLE_MS, tuple(taken.rows)))
        if taken.exhausted:
            ranges = [row[:2] for row in taken.exhausted]
            self._line.drop(ranges)
            self._finished(ranges, FinishReason.PARKED)

    def _acknowledge(self) -> None:
        lease = self._some_lease()
        if lease is None:
            return
        offsets = self._part(lease)
        self.counts.stale += len(self._settle(offsets, lease))

    def _settle(self, offsets: list[int], lease: HeldLease) -> list[int]:
        number = lease.number
        expected = [one for one in offsets if self._may_settle(one, lease)]
        settled = self._line.finish(ranges_of(offsets), number)
        got = [one for first, count, _ in settled.rows for one in range(first, first + count)]
        open_ones = [one for one in expected if one in self._live]
        if got != open_ones:
            raise PopViolation(f"acknowledging {offsets} of lease {number:#x} settled {got}, expected {open_ones}")
        if settled.rows:
            self._finished([row[:2] for row in settled.rows], FinishReason.ACKNOWLEDGED)
        return settled.stale

    def _redeliver(self) -> None:
        lease = self._some_lease()
        if lease is None:
            return
        offsets = self._part(lease)
        delay_ms, counts = self._chance.below(3) * 700, self._chance.below(4) > 0
        settled = self._line.redeliver(ranges_of(offsets), lease.number, self._now_ms, delay_ms, counts=counts)
        for first, count, attempt in settled.rows:
            for offset in range(first, first + count):
                if not self._may_settle(offset, lease):
                    raise PopViolation(
                        f"message {offset} was released by lease {lease.number:#x}, which no longer has it"
                    )
                row = self._row(offset)
                row.attempt, row.number, row.leased, row.until_ms = (
                    attempt, lease.number, False, self._now_ms + delay_ms,
                )  # fmt: skip
        if settled.rows:
            wall_ms = self._wall_ms + delay_ms
            self._write(PopReturned(TOPIC, GROUP, QUEUE, lease.number, wall_ms, delay_ms, tuple(settled.rows)))

    def _renew(self) -> None:
        lease = self._some_lease()
        if lease is None:
            return
        settled = self._line.renew(ranges_of(self._part(lease)), lease.number, self._now_ms, INVISIBLE_MS)
        for first, count, attempt in settled.rows:
            for offset in range(first, first + count):
                row = self._row(offset)
                row.attempt, row.number, row.leased, row.until_ms = (
                    attempt, lease.number, True, self._now_ms + INVISIBLE_MS,
                )  # fmt: skip
        if settled.rows:
            wall_ms = self._wall_ms + INVISIBLE_MS
            self._write(PopLeased(TOPIC, GROUP, QUEUE, lease.number, wall_ms, INVISIBLE_MS, tuple(settled.rows)))

    def _pass_time(self) -> None:
        step_ms = self._chance.below(600)
        self._now_ms += step_ms
        self._wall_ms += step_ms

    def _forget(self) -> None:
        if self._leases:
            self._leases.pop(self._chance.below(len(self._leases)))

    def _flush(self) -> None:
        encoded = encode_changes([change.encoded() for change in self._pending])
        for change in decode_changes(encoded):
            self._state.apply(change)
            self._log.append(change)
        self._pending.clear()
        for offset in self._changed:
            row = self._live.get(offset)
            if row is None or row.done:
                self._durable.pop(offset, None)
            else:
                self._durable[offset] = row.copy()
        self._changed.clear()

    def _take_checkpoint(self) -> None:
        fold_from = len(self._log)
        parts = self._state.checkpoint()
        encoded = []
        for part in parts:
            encoded.append(part)
            if self._chance.below(3) == 0:
                self._flush()
        self._checkpoint = (encode_changes(encoded), fold_from)

    def _crash(self) -> None:
        self.counts.crashes += 1
        self._pending.clear()
        for offset in self._changed:
            if offset in self._durable:
                self._live[offset] = self._durable[offset].copy()
            else:
                self._live.pop(offset, None)
        self._changed.clear()
        self._restart()

    def _restart(self) -> None:
        self.counts.starts += 1
        down_ms = self._chance.below(1500)
        self._wall_ms += down_ms
        forward_ms = self._chance.below(5000)  # after a reboot monotonic time starts again
        for row in self._live.values():
            row.until_ms = self._now_ms + forward_ms + max(row.until_ms - self._now_ms - down_ms, 0)
        self._durable = {offset: row.copy() for offset, row in self._live.items()}
        self._now_ms += forward_ms
        self._opening += 1
        state = State()
        data, fold_from = self._checkpoint or (b"", 0)
        if data:
            state.apply_all(decode_changes(data))
        state.apply_all(self._log[fold_from:])
        self._state = state
        self._line = self._started()
        if fold_from > 50_000:
            del self._log[:fold_from]
            self._checkpoint, self._earlier = (data, 0), None

    def _remember(self) -> None:
        self._flush()
        rows = {offset: row.copy() for offset, row in self._live.items()}
        self._earlier = EarlierEnd(len(self._log), self._checkpoint, self._end, rows)

    def _lose_end(self, earlier: EarlierEnd) -> None:
        """Start on an older log, as after a restore. Consumers keep their leases, and offsets are assigned again."""
        self.counts.lost_ends += 1
        self._pending.clear()
        self._changed.clear()
        del self._log[earlier.log_length :], self._keys[earlier.end :], self._message_ids[earlier.end :]
        self._checkpoint, self._end = earlier.checkpoint, earlier.end
        self._live = {offset: row.copy() for offset, row in earlier.rows.items()}
        self._opening += OPENINGS_GAP
        self._first_lease = (self._opening + 1) << OPENING_SHIFT
        self._log.append(LeasesInvalidated(self._first_lease))
        self._earlier = None
        self._restart()

    def _drain(self) -> None:
        for _ in range(10_000):
            if not self._live:
                break
            self._now_ms += 5_000
            self._wall_ms += 5_000
            self._leases.clear()
            self._pop()
            for lease in self._leases:
                self._settle(sorted(lease.offsets), lease)
        if self._live:
            raise PopViolation(f"messages {sorted(self._live)[:20]} are lost")
        self._flush()
        queue = self._state.pops.get((TOPIC, GROUP, QUEUE))
        if queue is None or queue.intervals.floor != self._end or len(queue.intervals):
            raise PopViolation("everything is finished, but the folded floor is not at the end")
        if self._state.offsets.of(TOPIC, GROUP) != {QUEUE: self._end}:
            raise PopViolation("the committed offset does not follow the floor")

    # The model.

    def _check_delivery(self, offset: int, attempt: int, *, exhausted: bool) -> None:
        row = self._live.get(offset)
        if row is None:
            raise PopViolation(f"message {offset} is delivered although it is finished or not stored")
        if not self._is_free(offset, row):
            raise PopViolation(f"message {offset} is delivered although it is not its turn: {row}")
        if attempt != row.attempt + (not exhausted):
            raise PopViolation(f"message {offset} is delivered as attempt {attempt}, the model says {row.attempt + 1}")

    def _is_free(self, offset: int, row: Row) -> bool:
        if row.until_ms > self._now_ms:
            return False
        key = self._keys[offset] if self.in_order else None
        return key is None or not any(self._keys[one] == key for one in self._live if one < offset)

    def _check_nothing_left(self) -> None:
        for offset, row in self._live.items():
            if self._is_free(offset, row):
                raise PopViolation(f"message {offset} could be delivered and is not: {row}")

    def _may_settle(self, offset: int, lease: HeldLease) -> bool:
        row, number = self._live.get(offset), lease.number
        if row is None or lease.message_ids[offset] != self._message_ids[offset]:
            return False
        if row.number == number:
            return row.leased
        return number > row.number and self._first_lease <= number and number >> OPENING_SHIFT < self._opening

    def _row(self, offset: int) -> Row:
        self._changed[offset] = None
        return self._live[offset]

    def _finished(self, ranges: list[tuple[int, int]], reason: FinishReason) -> None:
        for first, count in ranges:
            for offset in range(first, first + count):
                self._changed[offset] = None
                del self._live[offset]
                self.counts.finished += 1
                self.counts.parked += reason is FinishReason.PARKED
        self._write(PopFinished(TOPIC, GROUP, QUEUE, int(reason), tuple(ranges)))

    def _write(self, change: StateChange) -> None:
        self._pending.append(change)

    def _some_lease(self) -> HeldLease | None:
        return self._leases[self._chance.below(len(self._leases))] if self._leases else None

    def _part(self, lease: HeldLease) -> list[int]:
        """All of a lease's messages, or some that it then no longer has."""
        if self._chance.below(3):
            self._leases.remove(lease)
            return sorted(lease.offsets)
        return sorted({one for one in lease.offsets if self._chance.below(2)})

    def _started(self) -> PopLine:
        queue = self._state.pops.get((TOPIC, GROUP, QUEUE)) or PopQueue(0)
        return PopLine(
            queue,
            opening=self._opening,
            now_ms=self._now_ms,
            wall_ms=self._wall_ms,
            in_order=self.in_order,
            first_number=self._state.pops.first_lease_number,
            end_at_opening=self._end,
        )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for in_order in (False, True):
        counts = PopSchedule(given.seed, in_order).run(given.steps // 2)
        sys.stdout.write(f"seed {given.seed}, {'in order' if in_order else 'any order'}: {counts}\n")


if __name__ == "__main__":
    main()
