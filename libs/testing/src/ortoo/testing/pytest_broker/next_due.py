"""The next timed action of an enode, so that a leap of time does not skip it."""

from itertools import islice

from ortoo.enode.schedules.occurrences import rule_of
from ortoo.enode.state.fold import State

LINES_MAX = 1_000
"""The number of leases examined in each queue."""


def next_due_ms(state: State, after_ms: int) -> int | None:
    """The time of the next delayed or scheduled message, lease expiry, retry or transaction check.

    Times are wall-clock milliseconds.
    """
    found = [half.next_check_ms for half in state.halves.open.values()]
    for schedule in state.schedules.all():
        if not schedule.suspended:
            found += islice(rule_of(schedule).after(max(schedule.settled_ms, after_ms)), 1)
    for topic_id in tuple(state.timers._topics):
        found += [at_ms for at_ms, *_ in state.timers.select(topic_id, after_ms, 1)]
    for queues in tuple(state.pops._topics.values()):
        for queue in tuple(queues.values()):
            pieces = queue.intervals.rows(queue.intervals.floor, LINES_MAX)
            found += [piece.state.until_ms for piece in pieces if piece.state is not None]
    return min((at_ms for at_ms in found if at_ms > after_ms), default=None)
