"""Pops that wait take nothing from settlements on the same stream."""

import asyncio
from collections.abc import AsyncIterator

from ortoo.common.grpc.around import call_memory
from ortoo.common.process.background import Background
from ortoo.common.process.memory_budget import SENDERS_PERCENT, MemoryBudget
from ortoo.enode.rpc.streams.all import Streams
from ortoo.enode.rpc.streams.lease import LeaseStream
from ortoo.v1 import enode_pop_pb2 as pb

POPS = 20_000


async def waiting(_: pb.PopQueuesRequest) -> pb.PopQueuesResponse:
    """Never find anything."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError


async def settled(_: pb.SettlePoppedRequest) -> pb.SettlePoppedResponse:
    """Settle everything."""
    return pb.SettlePoppedResponse()


async def answers(pops: int) -> dict[int, str | None]:
    """How the requests of a stream ended: a settlement behind so many pops that wait, by its number."""

    async def requests() -> AsyncIterator[pb.LeaseRequest]:
        for number in range(1, pops + 1):
            yield pb.LeaseRequest(request_id=number, pop=pb.PopQueuesRequest())
        yield pb.LeaseRequest(request_id=pops + 1, settle=pb.SettlePoppedRequest())
        await asyncio.get_running_loop().create_future()

    ended: dict[int, str | None] = {}
    async with asyncio.timeout(60), Background("test") as background:
        running = Streams(background, asyncio.Event()).run("lease", LeaseStream(waiting, settled), requests())
        async for answer in running:
            ended[answer.request_id] = answer.WhichOneof("ended")
            if answer.request_id > pops:
                break
        await running.aclose()  # type: ignore[attr-defined]  # it is a generator
    return ended


async def test_a_settlement_is_taken_behind_any_number_of_pops_that_wait() -> None:
    """The stream has the snode's consumers, however many, on it; the first answer says that it is taken."""
    assert await answers(POPS) == {0: None, POPS + 1: "settled"}


async def test_a_settlement_is_taken_from_what_memory_is_kept_for_single_requests() -> None:
    """As a call of its own would be: whoever acknowledges goes on beside many who do not read."""
    budget = MemoryBudget(3 << 30)
    budget.share("unread").take(budget.bytes_max * (100 - SENDERS_PERCENT) // 100 + 1)
    token = call_memory._share.set(budget.share("Lease"))
    try:
        assert await answers(0) == {0: None, 1: "settled"}
    finally:
        call_memory._share.reset(token)
