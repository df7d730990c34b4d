"""Batches of a producer in flight to one queue."""

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from ortoo.client import NotFound, Overloaded, Unavailable
from ortoo.client.produce.in_flight import IN_FLIGHT_MAX, FailureAction, InFlight
from ortoo.client.produce.producer_batch import ProducerBatch
from ortoo.common.errors import NOT_ACCEPTED_FIELD, Invalid
from ortoo.common.records.compression import Codec
from ortoo.common.records.message import Message
from tests.unit.client.made_batches import QUEUE

GAP = Unavailable("gap", field="batch.first_sequence")
STOPPING = Unavailable("the enode stops", field=NOT_ACCEPTED_FIELD)
UNKNOWN = NotFound("unknown", field="batch.producer_id")


@pytest.fixture
def in_flight() -> InFlight:
    """An account whose producer ids are 1, 2, 3."""
    ids: Iterator[int] = count(1)
    return InFlight(lambda: next(ids))


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    """Futures need a loop."""
    asyncio.set_event_loop(made := asyncio.new_event_loop())
    yield
    made.close()
    asyncio.set_event_loop(None)


def made(messages: int = 2, deadline_s: float = 100.0) -> ProducerBatch:
    batch = ProducerBatch(QUEUE, 7, asyncio.get_event_loop_policy().get_event_loop().create_future(), deadline_s)
    batch.encode([Message(b"x")] * messages, now_ms=1, codec=Codec.NONE)
    return batch


def identity(sent: ProducerBatch | None) -> tuple[int, int]:
    assert sent is not None
    return sent.sealed.producer_id, sent.sealed.first_sequence


def test_sequences_count_messages_and_few_batches_are_under_way(in_flight: InFlight) -> None:
    """The sixth batch waits for the answer to the first, because the enode remembers the offsets of five."""
    for _ in range(IN_FLIGHT_MAX + 1):
        in_flight.put(made())
    sent = [in_flight.next_to_send() for _ in range(IN_FLIGHT_MAX)]
    assert [identity(it) for it in sent] == [(1, 2 * n) for n in range(IN_FLIGHT_MAX)]
    assert in_flight.next_to_send() is None
    assert sent[0] is not None
    in_flight.on_stored(sent[0])
    assert identity(in_flight.next_to_send()) == (1, 2 * IN_FLIGHT_MAX)


def test_a_batch_comes_again_as_it_was_and_before_those_behind_it(in_flight: InFlight) -> None:
    """After a refusal nothing is sent until everything in flight is answered, then all in order, same numbers."""
    for _ in range(3):
        in_flight.put(made())
    first, second = in_flight.next_to_send(), in_flight.next_to_send()
    assert first is not None
    assert second is not None
    assert in_flight.on_failed(first, Overloaded()) is FailureAction.RETRY
    assert in_flight.next_to_send() is None
    assert in_flight.on_failed(second, GAP) is FailureAction.RETRY
    assert in_flight.is_ready_to_retry
    in_flight.retry()
    assert [identity(in_flight.next_to_send()) for _ in range(3)] == [(1, 0), (1, 2), (1, 4)]


def test_an_unknown_id_is_kept_while_its_first_batch_is_to_come_again(in_flight: InFlight) -> None:
    """The enode refused the first batch, so it does not have the id; with a new number the second would leave a gap."""
    for _ in range(3):
        in_flight.put(made())
    first, second, third = [it for _ in range(3) if (it := in_flight.next_to_send()) is not None]
    for batch, error in ((first, Overloaded()), (second, UNKNOWN), (third, Overloaded())):
        assert in_flight.on_failed(batch, error) is FailureAction.RETRY
    in_flight.retry()
    assert [identity(in_flight.next_to_send()) for _ in range(3)] == [(1, 0), (1, 2), (1, 4)]


def test_what_an_enode_has_not_taken_may_go_elsewhere(in_flight: InFlight) -> None:
    """The batch moves with those that were never sent; a later batch here gets its sequence."""
    for _ in range(IN_FLIGHT_MAX + 2):
        in_flight.put(made())
    sent = [it for _ in range(IN_FLIGHT_MAX) if (it := in_flight.next_to_send()) is not None]
    in_flight.on_stored(sent[0])
    for batch in sent[1:]:
        assert in_flight.on_failed(batch, STOPPING) is FailureAction.REROUTE
        assert not batch.is_numbered
    assert len(in_flight.take_reroutable()) == 2
    in_flight.put(made())
    assert in_flight.next_to_send() is None
    assert in_flight.is_ready_to_retry
    in_flight.retry()
    assert identity(in_flight.next_to_send()) == (1, 2)


@pytest.mark.parametrize("why", ["its outcome was unknown once", "the connection broke once", "it belongs here"])
def test_what_may_be_stored_or_belongs_here_stays(in_flight: InFlight, why: str) -> None:
    """G4: a batch that may be stored already moves to no other queue, nor do those that were sent behind it."""
    for _ in range(2):
        in_flight.put(made())
    first, second = in_flight.next_to_send(), in_flight.next_to_send()
    assert first is not None
    assert second is not None
    if why == "it belongs here":
        first.is_pinned = True
    else:
        if why == "the connection broke once":
            in_flight.on_connection_lost()
        else:
            assert in_flight.on_failed(first, Unavailable("who knows")) is FailureAction.RETRY
            assert in_flight.on_failed(second, GAP) is FailureAction.RETRY
        in_flight.retry()
        assert (in_flight.next_to_send(), in_flight.next_to_send()) == (first, second)
    assert in_flight.on_failed(first, STOPPING) is FailureAction.RETRY
    assert in_flight.on_failed(second, STOPPING) is FailureAction.RETRY
    in_flight.retry()
    assert [identity(in_flight.next_to_send()) for _ in range(2)] == [(1, 0), (1, 2)]


def test_a_lost_connection_returns_everything(in_flight: InFlight) -> None:
    """Batches in flight keep queue, id and sequence."""
    for _ in range(2):
        in_flight.put(made())
        in_flight.next_to_send()
    in_flight.on_connection_lost()
    in_flight.retry()
    assert [identity(in_flight.next_to_send()) for _ in range(2)] == [(1, 0), (1, 2)]


def test_a_batch_that_is_refused_for_good_leaves_no_gap(in_flight: InFlight) -> None:
    """The batches behind it were certainly not stored, so they get its sequence."""
    for _ in range(3):
        in_flight.put(made())
    bad, second, third = (in_flight.next_to_send() for _ in range(3))
    assert bad is not None
    assert second is not None
    assert third is not None
    assert in_flight.on_failed(bad, Invalid("bad")) is FailureAction.FAIL
    in_flight.on_failed(second, GAP)
    in_flight.on_failed(third, GAP)
    assert in_flight.is_ready_to_retry
    in_flight.retry()
    assert [identity(in_flight.next_to_send()) for _ in range(2)] == [(1, 0), (1, 2)]


def test_a_forgotten_producer_begins_again(in_flight: InFlight) -> None:
    """Nothing was stored under the old id, so the batch gets a new id and sequence 0."""
    in_flight.put(made())
    sent = in_flight.next_to_send()
    assert sent is not None
    assert in_flight.on_failed(sent, UNKNOWN) is FailureAction.RETRY
    in_flight.retry()
    assert identity(in_flight.next_to_send()) == (2, 0)


def test_after_giving_up_new_batches_have_a_new_identity(in_flight: InFlight) -> None:
    """The outcome of a sent batch is unknown, and a gap under the old id would block everything forever."""
    late, waiting = made(deadline_s=1.0), made(deadline_s=50.0)
    in_flight.put(late)
    in_flight.next_to_send()
    in_flight.put(waiting)
    assert in_flight.take_expired(0.5) == []
    assert in_flight.take_expired(1.0) == [late]
    assert identity(in_flight.next_to_send()) == (2, 0)
    assert list(in_flight.all_batches()) == [waiting]


def test_giving_up_what_was_never_sent_changes_nothing_else(in_flight: InFlight) -> None:
    """The identity stays, because no sequence was used."""
    in_flight.put(made(deadline_s=1.0))
    assert len(in_flight.take_expired(2.0)) == 1
    in_flight.put(made())
    assert identity(in_flight.next_to_send()) == (1, 0)
    assert not in_flight.is_idle


def test_what_waits_for_a_batch_that_goes_on_under_another_id_goes_after_it(in_flight: InFlight) -> None:
    """The enode does not have the producer, and the next batch has a permanent gap, so both get new numbers."""
    first, second = made(), made()
    for batch in (first, second):
        in_flight.put(batch)
        in_flight.next_to_send()
    assert in_flight.on_failed(first, UNKNOWN) is FailureAction.RETRY
    assert in_flight.on_failed(second, GAP) is FailureAction.RETRY
    in_flight.retry()
    assert [in_flight.next_to_send() for _ in range(2)] == [first, second]
    assert [identity(it) for it in (first, second)] == [(2, 0), (2, 2)]


@pytest.mark.parametrize("how", ["its outcome was unknown once", "the connection broke once"])
def test_the_sequence_of_a_refused_batch_that_may_be_stored_is_nobody_elses(in_flight: InFlight, how: str) -> None:
    """The enode may have stored it at the first attempt and would reject its number, so the next gets a new id."""
    first, second = made(), made(3)
    in_flight.put(first)
    in_flight.put(second)
    assert [in_flight.next_to_send() for _ in range(2)] == [first, second]
    if how == "the connection broke once":
        in_flight.on_connection_lost()
    else:
        assert in_flight.on_failed(first, Unavailable("who knows")) is FailureAction.RETRY
        assert in_flight.on_failed(second, GAP) is FailureAction.RETRY
    in_flight.retry()
    assert [in_flight.next_to_send() for _ in range(2)] == [first, second]
    assert in_flight.on_failed(first, Invalid("the topic is read-only now")) is FailureAction.FAIL
    assert in_flight.on_failed(second, GAP) is FailureAction.RETRY
    in_flight.retry()
    assert identity(in_flight.next_to_send()) == (2, 0)


def test_what_may_be_stored_keeps_its_number_when_one_behind_it_is_refused(in_flight: InFlight) -> None:
    """The first batch may be stored; under another number it would be stored again (G4)."""
    first, second, third = made(), made(3), made()
    in_flight.put(first)
    assert in_flight.next_to_send() is first
    in_flight.on_connection_lost()
    in_flight.put(second)
    in_flight.put(third)
    in_flight.retry()
    assert [in_flight.next_to_send() for _ in range(3)] == [first, second, third]
    assert in_flight.on_failed(first, Overloaded("slow down")) is FailureAction.RETRY
    assert in_flight.on_failed(second, Invalid("the topic is read-only now")) is FailureAction.FAIL
    assert in_flight.on_failed(third, GAP) is FailureAction.RETRY
    in_flight.retry()
    assert [in_flight.next_to_send() for _ in range(2)] == [first, third]
    assert [identity(it) for it in (first, third)] == [(1, 0), (1, 2)]
