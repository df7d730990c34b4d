"""Interrupted deliveries: their attempts and repetitions, until the group's offset passes them."""

from ortoo.enode.pops.interruptions import PLACES_MAX, Interruption, Interruptions

PLACE = (7, "g", 0)


def test_interruptions_without_progress_repeat() -> None:
    """Progress of the group begins a new series."""
    it = Interruptions()
    for repeats in (1, 2, 3):
        found = it.record(PLACE, Interruption(0, 5, 30), 5)
        assert found == it.of(PLACE, 5) == Interruption(0, 5, 30, 0, repeats)
    assert it.record(PLACE, Interruption(0, 9, 30), 5) == Interruption(0, 9, 30, 0, 1)


def test_an_attempt_counts_for_the_only_message() -> None:
    """Interruptions with several messages keep the attempts of the first one."""
    it = Interruptions()
    assert it.record(PLACE, Interruption(0, 5, 6, 1), 5) == Interruption(0, 5, 6, 1, 1)
    assert it.record(PLACE, Interruption(0, 5, 40), 5) == Interruption(0, 5, 40, 1, 2)
    assert it.record(PLACE, Interruption(0, 5, 6, 1), 5) == Interruption(0, 5, 6, 2, 3)


def test_messages_that_did_not_end_the_session_are_not_suspected() -> None:
    """An empty range clears them; counted attempts stay."""
    it = Interruptions()
    it.record(PLACE, Interruption(0, 5, 30), 5)
    assert it.record(PLACE, Interruption(0, 5, 5), 5) is None
    assert it.of(PLACE, 5) is None
    it.record(PLACE, Interruption(0, 5, 6, 1), 5)
    it.record(PLACE, Interruption(0, 5, 30), 5)
    assert it.record(PLACE, Interruption(0, 5, 5), 5) is None
    assert it.of(PLACE, 5) == Interruption(0, 5, 6, 1, 1)


def test_acknowledged_messages_are_forgotten() -> None:
    """So are the queues of an operator's reset, and the oldest of very many queues."""
    it = Interruptions()
    assert it.record(PLACE, Interruption(0, 5, 6, 1), 6) is None
    it.record(PLACE, Interruption(0, 5, 8), 6)
    assert it.of(PLACE, 7) == Interruption(0, 6, 8, 0, 1)
    assert it.of(PLACE, 8) is None
    assert it.of(PLACE, 0) is None
    it.record(PLACE, Interruption(0, 5, 6, 1), 5)
    it.drop(PLACE)
    assert it.of(PLACE, 5) is None
    for number in range(PLACES_MAX + 1):
        it.record((number, "g", 0), Interruption(0, 5, 6, 1), 5)
    assert it.of((0, "g", 0), 5) is None
    assert it.of((1, "g", 0), 5) is not None
