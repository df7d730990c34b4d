"""Offsets in memory on their way to a store."""

import asyncio
from typing import Any

import pytest

from ortoo.client import Queue, Unavailable
from ortoo.client.offsets.store import OffsetTable, RemoteOffsets
from ortoo.v1 import pull_pb2

QUEUE, OTHER = Queue("t", "enode-0", 0), Queue("t", "enode-1", 0)


def test_concurrent_progress_only_grows_and_a_reset_sets() -> None:
    """E-103: increase-only ignores a smaller offset. A plain update sets it."""
    table = OffsetTable()
    table.update(QUEUE, 10, increase_only=True)
    table.update(QUEUE, 4, increase_only=True)
    assert table.all_offsets() == {QUEUE: 10}
    table.update(QUEUE, 4)
    assert table.all_offsets() == {QUEUE: 4}


def test_only_what_the_store_does_not_have_is_sent() -> None:
    """E-108: a round without progress sends nothing. An offset that was refused is sent again."""
    table = OffsetTable()
    table.set_loaded(QUEUE, 3)
    table.update(OTHER, 5)
    assert table.unstored([QUEUE, OTHER]) == {OTHER: 5}
    assert table.unstored([QUEUE]) == {}
    table.update(QUEUE, 4)
    table.mark_stored({OTHER: 5})
    assert table.unstored([QUEUE, OTHER]) == {QUEUE: 4}


def test_queues_that_are_not_owned_are_forgotten() -> None:
    """E-109: a stale entry never overwrites what the new owner committed."""
    table = OffsetTable()
    table.update(QUEUE, 5)
    table.update(OTHER, 6)
    table.forget(QUEUE)
    assert QUEUE not in table.all_offsets()
    assert table.unstored([QUEUE, OTHER]) == {OTHER: 6}
    assert table.all_offsets() == {OTHER: 6}
    table.mark_pending([OTHER])
    table.forget(OTHER)
    table.mark_stored({OTHER: 6})  # the answer comes late
    table.update(OTHER, 6)
    assert table.unstored([OTHER]) == {OTHER: 6}


class Store:
    """A connection to enodes that store offsets; the first answer is lost."""

    def __init__(self, lost: BaseException) -> None:
        self.lost: BaseException | None = lost
        self.offset = -1

    async def call(self, stub: object, method: str, request: Any) -> pull_pb2.CommitConsumerOffsetsResponse:
        [row] = request.offsets
        self.offset = row.offset
        lost, self.lost = self.lost, None
        if lost is not None:
            raise lost
        return pull_pb2.CommitConsumerOffsetsResponse()


@pytest.mark.parametrize(
    "lost", [Unavailable("the outcome is unknown"), asyncio.CancelledError()], ids=["away", "stop"]
)
async def test_what_the_store_has_is_not_known_while_it_is_asked(lost: BaseException) -> None:
    """A consumer seeks back, loses the answer to that commit, returns to its old offset, and stores that again."""
    store = Store(lost)
    offsets = RemoteOffsets(store, "g", lambda _: 1)  # type: ignore[arg-type]  # of a connection only this is used
    offsets.table.set_loaded(QUEUE, 10)
    offsets.table.update(QUEUE, 0)
    if isinstance(lost, Unavailable):
        assert await offsets.persist([QUEUE]) == []
    else:
        with pytest.raises(asyncio.CancelledError):
            await offsets.persist([QUEUE])
    assert store.offset == 0
    offsets.table.update(QUEUE, 10, increase_only=True)
    assert await offsets.persist([QUEUE]) == []
    assert store.offset == 10
    store.offset = -1
    assert await offsets.persist([QUEUE]) == []
    assert store.offset == -1, "nothing is new"
