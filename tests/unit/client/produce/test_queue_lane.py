"""What a producer has under way to one queue."""

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from ortoo.client import NotFound, Overloaded, Unavailable
from ortoo.client.produce.batcher import IN_FLIGHT_MAX, Fate, QueueLane
from ortoo.client.produce.producer_batch import Parcel
from ortoo.common.errors import NOT_TAKEN_FIELD, Invalid
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from tests.unit.client.made_batches import QUEUE

GAP = Unavailable("gap", field="batch.first_sequence")
STOPPING = Unavailable("the enode stops", field=NOT_TAKEN_FIELD)
UNKNOWN = NotFound("unknown", field="batch.producer_id")


@pytest.fixture
def lane() -> QueueLane:
    """A lane whose producer ids are 1, 2, 3."""
    ids: Iterator[int] = count(1)
    return QueueLane(lambda: next(ids))


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    """Futures need a loop."""
    asyncio.set_event_loop(made := asyncio.new_event_loop())
    yield
    made.close()
    asyncio.set_event_loop(None)


def parcel(messages: int = 2, deadline_s: float = 100.0) -> Parcel:
    made = Parcel(QUEUE, 7, asyncio.get_event_loop_policy().get_event_loop().create_future(), deadline_s)
    made.seal(encode([Message(b"x")] * messages, now_ms=1))
    return made


def identity(sent: Parcel | None) -> tuple[int, int]:
    assert sent is not None
    return sent.batch.producer_id, sent.batch.first_sequence


def test_sequences_count_messages_and_few_batches_are_under_way(lane: QueueLane) -> None:
    """The sixth batch waits for the answer of the first: the enode remembers the offsets of five."""
    for _ in range(IN_FLIGHT_MAX + 1):
        lane.put(parcel())
    sent = [lane.next_to_send() for _ in range(IN_FLIGHT_MAX)]
    assert [identity(it) for it in sent] == [(1, 2 * n) for n in range(IN_FLIGHT_MAX)]
    assert lane.next_to_send() is None
    assert sent[0] is not None
    lane.stored(sent[0])
    assert identity(lane.next_to_send()) == (1, 2 * IN_FLIGHT_MAX)


def test_a_batch_comes_again_as_it_was_and_before_those_behind_it(lane: QueueLane) -> None:
    """After a refusal nothing new goes out until all under way is answered; then all goes in order, same numbers."""
    for _ in range(3):
        lane.put(parcel())
    first, second = lane.next_to_send(), lane.next_to_send()
    assert first is not None
    assert second is not None
    assert lane.failed(first, Overloaded()) is Fate.RETURNED
    assert lane.next_to_send() is None
    assert lane.failed(second, GAP) is Fate.RETURNED
    assert lane.is_waiting_to_resend
    lane.resume()
    assert [identity(lane.next_to_send()) for _ in range(3)] == [(1, 0), (1, 2), (1, 4)]


def test_what_an_enode_has_not_taken_may_go_elsewhere(lane: QueueLane) -> None:
    """The batch leaves with what was never sent; what is sent here later begins where it would have stood."""
    for _ in range(IN_FLIGHT_MAX + 2):
        lane.put(parcel())
    sent = [it for _ in range(IN_FLIGHT_MAX) if (it := lane.next_to_send()) is not None]
    lane.stored(sent[0])
    for batch in sent[1:]:
        assert lane.failed(batch, STOPPING) is Fate.MOVES
        assert not batch.is_numbered
    assert len(lane.take_movable()) == 2
    lane.put(parcel())
    assert lane.next_to_send() is None
    assert lane.is_waiting_to_resend
    lane.resume()
    assert identity(lane.next_to_send()) == (1, 2)


@pytest.mark.parametrize("why", ["its outcome was unknown once", "the connection broke once", "it belongs here"])
def test_what_may_be_stored_or_belongs_here_stays(lane: QueueLane, why: str) -> None:
    """G4: a batch that may lie in a queue already goes to no other, nor does what was sent behind it."""
    for _ in range(2):
        lane.put(parcel())
    first, second = lane.next_to_send(), lane.next_to_send()
    assert first is not None
    assert second is not None
    if why == "it belongs here":
        first.is_bound = True
    else:
        if why == "the connection broke once":
            lane.connection_lost()
        else:
            assert lane.failed(first, Unavailable("who knows")) is Fate.RETURNED
            assert lane.failed(second, GAP) is Fate.RETURNED
        lane.resume()
        assert (lane.next_to_send(), lane.next_to_send()) == (first, second)
    assert lane.failed(first, STOPPING) is Fate.RETURNED
    assert lane.failed(second, STOPPING) is Fate.RETURNED
    lane.resume()
    assert [identity(lane.next_to_send()) for _ in range(2)] == [(1, 0), (1, 2)]


def test_a_lost_connection_returns_everything(lane: QueueLane) -> None:
    """What was under way keeps queue, id and sequence."""
    for _ in range(2):
        lane.put(parcel())
        lane.next_to_send()
    lane.connection_lost()
    lane.resume()
    assert [identity(lane.next_to_send()) for _ in range(2)] == [(1, 0), (1, 2)]


def test_a_batch_that_is_refused_for_good_leaves_no_gap(lane: QueueLane) -> None:
    """The batches behind it were certainly not stored, so they take its sequence."""
    for _ in range(3):
        lane.put(parcel())
    bad, second, third = (lane.next_to_send() for _ in range(3))
    assert bad is not None
    assert second is not None
    assert third is not None
    assert lane.failed(bad, Invalid("bad")) is Fate.REFUSED
    lane.failed(second, GAP)
    lane.failed(third, GAP)
    assert lane.is_waiting_to_resend
    lane.resume()
    assert [identity(lane.next_to_send()) for _ in range(2)] == [(1, 0), (1, 2)]


def test_a_forgotten_producer_begins_anew(lane: QueueLane) -> None:
    """Nothing was stored under the old id, so the batch gets a new id and sequence 0."""
    lane.put(parcel())
    sent = lane.next_to_send()
    assert sent is not None
    assert lane.failed(sent, UNKNOWN) is Fate.RETURNED
    lane.resume()
    assert identity(lane.next_to_send()) == (2, 0)


def test_after_giving_up_new_batches_have_a_new_identity(lane: QueueLane) -> None:
    """The outcome of what was sent is unknown: a gap under the old id would block everything for ever."""
    late, waiting = parcel(deadline_s=1.0), parcel(deadline_s=50.0)
    lane.put(late)
    lane.next_to_send()
    lane.put(waiting)
    assert lane.give_up(0.5) == []
    assert lane.give_up(1.0) == [late]
    assert identity(lane.next_to_send()) == (2, 0)
    assert list(lane.everything()) == [waiting]


def test_giving_up_what_was_never_sent_changes_nothing_else(lane: QueueLane) -> None:
    """The identity stays: no sequence was used."""
    lane.put(parcel(deadline_s=1.0))
    assert len(lane.give_up(2.0)) == 1
    lane.put(parcel())
    assert identity(lane.next_to_send()) == (1, 0)
    assert not lane.is_idle
