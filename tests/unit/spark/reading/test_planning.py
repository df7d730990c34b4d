"""Plans of reads: every offset is read once, and tasks are balanced."""

from hypothesis import given
from hypothesis import strategies as st

from ortoo.client import Queue
from ortoo.client.offsets.offset_lookup import QueueSize
from ortoo.spark.reading.batch_limits import BytesLimit, Measure, limit_offsets
from ortoo.spark.reading.planning import plan
from ortoo.spark.reading.topic_state import OffsetSpan

QUEUES = st.builds(Queue, st.sampled_from(["t", "u"]), st.sampled_from(["a", "b"]), st.integers(0, 7))
RANGES = st.builds(lambda begin, size: OffsetSpan(begin, begin + size), st.integers(0, 1_000), st.integers(0, 500_000))


@given(st.dictionaries(QUEUES, RANGES), st.integers(0, 40), st.sampled_from([0, 1_000, 70_000]), st.integers(1, 16))
def test_tasks_cover_every_offset_once(
    wanted: dict[Queue, OffsetSpan], min_partitions: int, max_records: int, queues_max: int
) -> None:
    """For any options the slices together are the ranges, in order, and a second plan is equal."""
    options = {"min_partitions": min_partitions, "max_records": max_records, "max_queues_per_task": queues_max}
    tasks = plan(wanted, {}, **options)
    assert tasks == plan(dict(reversed(wanted.items())), {}, **options)
    at = {queue: held.begin for queue, held in wanted.items()}
    for piece in sorted(piece for task in tasks for piece in task):
        assert piece.begin == at[piece.queue]
        assert piece.end > piece.begin
        at[piece.queue] = piece.end
        assert not max_records or piece.messages <= max_records
    assert at == {queue: held.end for queue, held in wanted.items()}
    assert all(len({piece.queue.enode for piece in task}) == 1 and len(task) <= queues_max for task in tasks)


def test_one_queue_is_cut_into_as_many_tasks_as_asked() -> None:
    """`minPartitions=8` on one queue gives at least eight tasks of equal size."""
    tasks = plan({Queue("t", "a", 0): OffsetSpan(5, 100_005)}, {}, min_partitions=8)
    assert len(tasks) == 8
    assert {task[0].messages for task in tasks} == {12_500}


def test_a_hot_queue_is_shared_and_idle_ones_share_a_task() -> None:
    """Check 5: one hot and seven idle queues give tasks within a factor of 1.5, except the idle ones."""
    wanted = {Queue("t", "a", n): OffsetSpan(0, 1_000_000 if n == 0 else 10) for n in range(8)}
    tasks = plan(wanted, {}, min_partitions=8)
    sizes = sorted(sum(piece.messages for piece in task) for task in tasks)
    hot = [size for size in sizes if size > 1_000]
    assert len(hot) >= 7
    assert hot[-1] <= 1.5 * hot[0]
    assert len(tasks) <= 10


@given(st.dictionaries(QUEUES, st.integers(0, 5_000)), st.integers(1, 20_000))
def test_a_limit_is_kept_exactly(latest: dict[Queue, int], messages_max: int) -> None:
    """Check 6: the sum is the limit, or everything. No queue moves back or beyond its end, and none is missing."""
    start = dict.fromkeys(latest, 0)
    ends = limit_offsets(start, latest, messages_max)
    assert sum(ends.values()) == min(messages_max, sum(latest.values()))
    assert all(0 <= ends[queue] <= latest[queue] for queue in latest)
    waiting = [queue for queue, count in latest.items() if count]
    if messages_max >= len(waiting):
        assert all(ends[queue] for queue in waiting)


STORED = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 400)), max_size=12)
"""The stored batches of a queue: the number of messages, and the bytes of each message."""


def measure_in(stored: dict[Queue, list[tuple[int, int]]]) -> Measure:
    """Measures like enodes do: whole batches from an offset on, at least one."""

    def size_of(batches: list[tuple[int, int]], first: int, bytes_max: int) -> QueueSize:
        end = size_bytes = 0
        for count, message_bytes in batches:
            end, batch_bytes = end + count, count * message_bytes
            if end <= first:
                continue
            if size_bytes and size_bytes + batch_bytes > bytes_max:
                return QueueSize(end - count, size_bytes)
            size_bytes += batch_bytes
        return QueueSize(max(first, end), size_bytes)

    return lambda starts: {queue: size_of(stored[queue], *start) for queue, start in starts.items()}


@given(st.dictionaries(QUEUES, STORED), st.integers(1, 3_000))
def test_a_limit_in_bytes_is_kept(stored: dict[Queue, list[tuple[int, int]]], bytes_max: int) -> None:
    """A batch has at most the allowed bytes, or one message, and everything is read."""
    latest = {queue: sum(count for count, _ in batches) for queue, batches in stored.items()}
    limit, at = BytesLimit(bytes_max, measure_in(stored)), dict.fromkeys(latest, 0)
    while at != latest:
        ends = limit.limit(at, latest)
        taken = [
            message_bytes
            for queue, batches in stored.items()
            for offset, message_bytes in enumerate(size for count, size in batches for _ in range(count))
            if at[queue] <= offset < ends[queue]
        ]
        assert taken
        assert len(taken) == 1 or sum(taken) <= bytes_max
        at = ends


def test_a_queue_without_an_answer_stays_at_its_start() -> None:
    """If an enode does not answer, the other queues are read."""
    away, there = Queue("t", "a", 0), Queue("t", "b", 0)
    limit = BytesLimit(100, lambda starts: {there: QueueSize(5, 50)})
    assert limit.limit({away: 3, there: 0}, {away: 9, there: 5}) == {away: 3, there: 5}


def test_no_queue_starves_when_the_limit_allows_only_one() -> None:
    """Queues take turns."""
    queues = [Queue("t", "a", number) for number in range(4)]
    stored = dict.fromkeys(queues, [(1, 90)] * 50)
    limit, at = BytesLimit(100, measure_in(stored)), dict.fromkeys(queues, 0)
    for _ in range(8):
        at = limit.limit(at, dict.fromkeys(queues, 50))
    assert set(at.values()) == {2}
