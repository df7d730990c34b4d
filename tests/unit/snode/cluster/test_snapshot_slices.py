"""A snapshot of a large directory delays no other work of a snode for long."""

import asyncio
from collections.abc import AsyncIterator

from ortoo.common.cluster.route_watch import RoutePosition
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.long_work import SLICE_ITEMS
from ortoo.snode.cluster.wire import decode_in_slices, decode_update
from ortoo.v1 import namesrv_pb2 as pb
from ortoo.v1 import topic_pb2

ROWS = 10 * SLICE_ITEMS


def snapshot() -> pb.WatchRoutesResponse:
    """A snapshot with many topics and groups."""
    placement = topic_pb2.Placement(enode="e", read_queue_count=4, write_queue_count=4)
    return pb.WatchRoutesResponse(
        version=1,
        snapshot=True,
        directory_id="d",
        placement_sets=[topic_pb2.PlacementSet(set_id=7, placements=[placement])],
        topics=[topic_pb2.Topic(name=f"t{at}", topic_id=at + 1, placement_set_id=7) for at in range(ROWS)],
        groups=[topic_pb2.Group(name=f"g{at}") for at in range(ROWS)],
    )


async def test_other_work_runs_between_slices() -> None:
    """Decoding and the checksums of the rows both let other tasks run, and change nothing of the result."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await SystemClock().sleep(0)

    async def parts() -> AsyncIterator[pb.WatchRoutesResponse]:
        yield snapshot()

    async with asyncio.TaskGroup() as group:
        other, clock = group.create_task(count()), SystemClock()
        assert await decode_in_slices(snapshot(), clock) == decode_update(snapshot())
        after_decoding = turns
        position = RoutePosition(clock)
        assert [update.version async for update in position.follow(parts())] == [1]
        after_checksums = turns
        other.cancel()
    slices = 2 * ROWS // SLICE_ITEMS
    assert after_decoding >= slices
    assert after_checksums - after_decoding >= slices
    assert position.request().since == 1
