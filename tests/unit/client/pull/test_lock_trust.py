"""The queue locks that a client trusts."""

import pytest

from ortoo.client import Queue
from ortoo.client.core.connection import Connection
from ortoo.client.pull.queue_locks import ConsumerQueueLocks
from ortoo.client.pull.settings import PullSettings
from ortoo.client.requests.requester import Requester
from ortoo.client.sessions.session import Session
from ortoo.common.process.randomness import Randomness
from ortoo.verification.time.stepped_clock import SetClock

QUEUE, OTHER = Queue("t", "enode-0", 0), Queue("t", "enode-0", 1)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def locks_of(clock: SetClock) -> ConsumerQueueLocks:
    """The locks of a member without requests, with the default trust."""
    connection = Connection(["localhost:8081"], clock=clock, randomness=Randomness(1))
    return ConsumerQueueLocks(
        connection, Session(connection, Requester(connection)), "g", PullSettings().lock_trust_ms / 1000
    )


def test_a_lock_is_trusted_for_half_its_life(clock: SetClock) -> None:
    """E-128: 30 s from the request, renewed by each grant."""
    locks = locks_of(clock)
    locks.add(QUEUE, 3, 100.0)
    clock.now_s = 130.0
    assert locks.is_trusted(QUEUE)
    clock.now_s = 130.1
    assert not locks.is_trusted(QUEUE)
    locks.add(QUEUE, 3, 120.0)
    clock.now_s = 150.0
    assert locks.is_trusted(QUEUE)
    assert (locks.generation(QUEUE), locks.generation(OTHER)) == (3, 0)


def test_a_lost_lock_is_not_trusted(clock: SetClock) -> None:
    """E-127: neither a refused one nor one that was never granted."""
    locks = locks_of(clock)
    locks.add(QUEUE, 3, 0.0)
    locks.discard(QUEUE, OTHER)
    assert not locks.is_trusted(QUEUE)
    assert (locks.generation(QUEUE), locks.held) == (0, [])
