"""The checker of histories refuses contradictions: each planted history has one."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.e2e.history import History, Read, Send


def told() -> History:
    """Ten sends one after another, of which one is unknown and stored and one is refused; reads in between."""
    sends = [Send(b"%d" % at, invoked_s=at, ended_s=at + 0.5, offset=at) for at in range(10)]
    sends[4] = replace(sends[4], offset=-1)
    sends.append(Send(b"unknown", 10.0, 10.5))
    sends.append(Send(b"refused", 11.0, 11.5, refused=True))
    stored = tuple((at, b"%d" % at) for at in range(10))
    reads = [Read(0, 5.6, 5.8, 6, stored[:6]), Read(0, 5.7, 6.9, 7, stored[3:7]), Read(0, 9.6, 9.7, 10, stored[8:])]
    return History(sends, reads, [Read(0, 20.0, 20.1, 10, stored)])


def test_what_one_log_can_tell_is_believed() -> None:
    """Unknown sends may be stored or not, and concurrent sends may be stored in any order."""
    assert told().problems() == []
    history = told()
    history.sends[7:9] = [replace(history.sends[7], ended_s=8.9), replace(history.sends[8], invoked_s=7.1)]
    assert history.problems() == []


def another_value(history: History) -> None:
    """Two leaders acknowledged different messages at one offset."""
    history.sends.append(Send(b"other", 12.0, 12.1, offset=9))


def read_another_value(history: History) -> None:
    """A replica served messages that the others truncated."""
    history.reads.append(Read(0, 3.0, 3.1, 20, ((3, b"cut"),)))


def changed_later(history: History) -> None:
    """The last read has another body where an earlier one had looked."""
    history.final[0] = replace(history.final[0], found=(*history.final[0].found[:4], (4, b"unknown"), *told_from(5)))


def acknowledged_and_gone(history: History) -> None:
    """The tail of the old leader, acknowledged and truncated."""
    history.final[0] = replace(history.final[0], end=9, found=history.final[0].found[:9])


def acknowledged_twice(history: History) -> None:
    """A send that was retried at the next leader is stored twice."""
    history.sends.append(Send(b"3", 12.0, 12.1, offset=10))
    add(history, (10, b"3"))


def stored_twice(history: History) -> None:
    """A message whose outcome was unknown is stored twice."""
    add(history, (10, b"unknown"), (11, b"unknown"))


def order_lost(history: History) -> None:
    """A message has a lower offset than one that was acknowledged before its send began."""
    history.sends[5:7] = [replace(history.sends[5], offset=6), replace(history.sends[6], offset=5)]
    swapped = (*told_from(0)[:5], (5, b"6"), (6, b"5"), *told_from(7))
    history.final[0] = replace(history.final[0], found=swapped)
    history.reads.clear()


def reader_goes_back(history: History) -> None:
    """A leader that has stepped down answers a read with its own end."""
    history.reads.append(Read(0, 7.0, 7.1, 6))


def reader_misses(history: History) -> None:
    """A read lacks a message that was acknowledged before it."""
    history.reads[2] = replace(history.reads[2], end=9, found=())


def a_gap(history: History) -> None:
    """An offset without an acknowledgement is missing."""
    history.final[0] = replace(history.final[0], found=(*told_from(0)[:4], *told_from(5)))


def refused_and_stored(history: History) -> None:
    """A message is stored although the answer was that it is not."""
    add(history, (10, b"refused"))


def from_nowhere(history: History) -> None:
    """A message of another replica set is stored."""
    add(history, (10, b"foreign"))


def add(history: History, *more: tuple[int, bytes]) -> None:
    """Let the last read have more."""
    final = history.final[0]
    history.final[0] = replace(final, end=final.end + len(more), found=(*final.found, *more))


def told_from(start: int) -> tuple[tuple[int, bytes], ...]:
    """The messages from an offset on."""
    return told().final[0].found[start:]


@pytest.mark.parametrize(
    "plant",
    [
        another_value,
        read_another_value,
        changed_later,
        acknowledged_and_gone,
        acknowledged_twice,
        stored_twice,
        order_lost,
        reader_goes_back,
        reader_misses,
        a_gap,
        refused_and_stored,
        from_nowhere,
    ],
)
def test_a_planted_history_is_refused(plant: Callable[[History], None]) -> None:
    """Each has one contradiction."""
    history = told()
    plant(history)
    assert history.problems() != []
