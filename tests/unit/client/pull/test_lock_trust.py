"""Which queue locks a client believes to hold."""

from ortoo.client import Queue
from ortoo.client.pull.lock_trust import LockTrust

QUEUE, OTHER = Queue("t", "enode-0", 0), Queue("t", "enode-0", 1)


def test_a_lock_is_trusted_for_half_its_life() -> None:
    """E-128: 30 s from the moment it was asked for, renewed by each grant."""
    trust = LockTrust()
    trust.granted(QUEUE, 3, 100.0)
    assert trust.is_trusted(QUEUE, 130.0)
    assert not trust.is_trusted(QUEUE, 130.1)
    trust.granted(QUEUE, 3, 120.0)
    assert trust.is_trusted(QUEUE, 150.0)
    assert (trust.generation(QUEUE), trust.generation(OTHER)) == (3, 0)


def test_a_lost_lock_is_not_trusted() -> None:
    """E-127: neither one that was refused nor one that never was granted."""
    trust = LockTrust()
    trust.granted(QUEUE, 3, 0.0)
    trust.lost([QUEUE, OTHER])
    assert not trust.is_trusted(QUEUE, 0.0)
    assert (trust.generation(QUEUE), trust.queues) == (0, [])
