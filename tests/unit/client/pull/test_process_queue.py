"""The unprocessed messages of a queue."""

from functools import partial

from ortoo.client import Queue
from ortoo.client.pull.process_queue import ProcessQueue, round_robin
from tests.unit.client.made_batches import QUEUE, made_batch


def test_messages_are_taken_in_order_and_once() -> None:
    """At most the requested number, never beyond the end of a batch."""
    queue = ProcessQueue(QUEUE, 0)
    queue.put(made_batch(0, 5))
    queue.put(made_batch(5, 2))
    taken = [[it.offset for it in queue.take(3)] for _ in range(4)]
    assert taken == [[0, 1, 2], [3, 4], [5, 6], []]
    assert queue.next_offset == 7


def test_a_batch_comes_whole() -> None:
    """Whole batches are taken in order too."""
    queue = ProcessQueue(QUEUE, 0)
    queue.put(made_batch(0, 5))
    queue.put(made_batch(5, 2))
    first, second = queue.take_batch(), queue.take_batch()
    assert first is not None
    assert second is not None
    assert (first.first_offset, second.first_offset, queue.take_batch()) == (0, 5, None)


def test_the_commit_offset_stays_before_the_first_unfinished_message() -> None:
    """E-148: if 5, 6 and 7 finish before 4, it stays 4. Filtered offsets count when all before are finished."""
    queue = ProcessQueue(QUEUE, 4)
    batch = made_batch(4, 4, finished=partial(queue.on_finished, 0))
    queue.put(batch)
    queue.advance(20)
    for place in (1, 2, 3):
        batch.ack_message(place)
    assert queue.commit_offset == 4
    batch.ack_message(0)
    assert queue.commit_offset == 20


def test_an_empty_answer_moves_an_idle_queue_on_and_never_back() -> None:
    """With nothing held the offset follows immediately; a smaller one changes nothing."""
    queue = ProcessQueue(QUEUE, 10)
    queue.advance(15)
    queue.advance(12)
    assert (queue.commit_offset, queue.next_offset) == (15, 15)


def test_a_dropped_queue_gives_nothing_out() -> None:
    """Its next owner gets the messages that were not taken."""
    queue = ProcessQueue(QUEUE, 0)
    queue.put(made_batch(0, 5))
    queue.drop()
    assert queue.take(1) == []
    assert queue.take_batch() is None


def test_queues_take_turns() -> None:
    """The one after the last served comes first; a queue that was removed does not disturb the order."""
    queues = [ProcessQueue(Queue("t", "e", number), 0) for number in (2, 0, 1)]
    assert [it.queue.queue_id for it in round_robin(queues, None)] == [0, 1, 2]
    assert [it.queue.queue_id for it in round_robin(queues, Queue("t", "e", 0))] == [1, 2, 0]
    assert [it.queue.queue_id for it in round_robin(queues, Queue("t", "e", 7))] == [0, 1, 2]


def test_a_queue_that_begins_elsewhere_forgets_what_it_held() -> None:
    """Neither waiting messages nor later acknowledgements count after the restart."""
    queue = ProcessQueue(QUEUE, 0)
    old = made_batch(0, 5, finished=partial(queue.on_finished, queue.epoch))
    queue.put(old)
    queue.reset(100)
    old.ack()
    assert (queue.next_offset, queue.commit_offset, queue.buffered.messages, queue.take(1)) == (100, 100, 0, [])
