"""Replayed dead letters beside others."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from ortoo.common.filters.selection import SelectedRows
from ortoo.common.groups.pop import ReplayRequest
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.common.records.view import RecordBatchView
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.link import QueueRange
from ortoo.snode.pop.dead_letters import DeadLetters
from ortoo.verification.time.virtual_clock import VirtualClock
from tests.unit.snode.fake_enode import TOPIC

QUEUE = Queue("t", "e", 0)


class Stored:
    """A batch of three letters, of which the second was not replayed."""

    def to(self, enode: str) -> "Stored":
        """The enode."""
        return self

    async def find(self, name: str) -> Any:
        """The topic of the letters."""
        return TOPIC

    async def all_queue_ranges(self, topic: Any, refusal: str) -> dict[Queue, QueueRange]:
        """One queue."""
        return {QUEUE: QueueRange(0, 4, 7)}

    async def fetch(self, *what: Any, **how: Any) -> AsyncIterator[tuple[int, SelectedRows]]:
        """The batch."""
        yield 77, SelectedRows(4, 7, 1, encode([Message(body) for body in (b"a", b"b", b"c")], now_ms=1), b"", 3)

    async def replay(self, wish: ReplayRequest) -> list[tuple[int, int]]:
        """The letters that would be replayed."""
        assert (wish.ranges, wish.dry_run) == (((4, 3),), True)
        return [(5, 1)]


@pytest.mark.parametrize(("with_replayed", "rows"), [(False, [1]), (True, [0, 1, 2])])
async def test_letters_that_are_not_asked_for_are_not_decoded(
    monkeypatch: pytest.MonkeyPatch, *, with_replayed: bool, rows: list[int]
) -> None:
    """A topic may have very many letters that were replayed long ago."""
    decoded: list[int] = []
    message = RecordBatchView.message

    def noted(view: RecordBatchView, row: int) -> Message:
        decoded.append(row)
        return message(view, row)

    monkeypatch.setattr(RecordBatchView, "message", noted)
    stored: Any = Stored()
    letters = DeadLetters(SimpleNamespace(), stored, stored, stored, VirtualClock())  # type: ignore[arg-type]
    found = [one async for one in letters.list_dead_letters("g", None, include_replayed=with_replayed)]
    assert [(one.offset, one.message.body, one.replayed) for one in found] == [
        (4 + row, b"abc"[row : row + 1], row != 1) for row in rows
    ]
    assert decoded == rows
