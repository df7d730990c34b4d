"""The Lease stream: each request is answered by itself, what is too much is refused, a stop answers what it took."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ortoo.common.errors import Conflict
from ortoo.common.grpc.around.call_memory import _share
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.enode.rpc.streams import lease
from ortoo.enode.rpc.streams.all import Streams
from ortoo.enode.rpc.streams.lease import LeaseStream
from ortoo.v1 import enode_pop_pb2 as pb
from ortoo.v1 import failure_pb2


class Peer:
    """An snode that pops and settles; topics stand for what becomes of a request."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[pb.LeaseRequest | None] = asyncio.Queue()
        self.message = asyncio.Event()
        """When a waiting pop finds something."""
        self.waiting = self.given = 0

    async def requests(self) -> AsyncIterator[pb.LeaseRequest]:
        while (request := await self.asked.get()) is not None:
            yield request

    def pop(self, number: int, group: str = "g", wait_ms: int = 0) -> None:
        self.asked.put_nowait(pb.LeaseRequest(request_id=number, pop=pb.PopQueuesRequest(group=group, wait_ms=wait_ms)))

    async def popped(self, request: pb.PopQueuesRequest) -> pb.PopQueuesResponse:
        if request.wait_ms:
            self.waiting += 1
            await self.message.wait()
        if request.group == "refused":
            raise Conflict("the group may not", field="group")
        self.given += 1
        return pb.PopQueuesResponse(blocked="x" * (lease.BYTES_MAX if request.group == "large" else 1))

    async def settled(self, request: pb.SettlePoppedRequest) -> pb.SettlePoppedResponse:
        return pb.SettlePoppedResponse(stale=[pb.StaleOffset(offset=7)])


async def turns() -> None:
    """Let everybody do what can be done."""
    for _ in range(20):
        await SystemClock().sleep(0)


async def following(answers: AsyncIterator[pb.LeaseResponse]) -> pb.LeaseResponse:
    return await anext(answers)


def by_number(answers: list[pb.LeaseResponse]) -> dict[int, str | None]:
    return {one.request_id: one.WhichOneof("ended") for one in answers}


async def test_a_pop_that_waits_holds_up_nobody_and_a_failure_is_one_requests_own() -> None:
    peer, draining = Peer(), asyncio.Event()
    async with Background("test") as background:
        answers = Streams(background, draining).run("lease", LeaseStream(peer.popped, peer.settled), peer.requests())
        peer.pop(1, wait_ms=1_000)
        peer.pop(2, group="refused")
        peer.asked.put_nowait(pb.LeaseRequest(request_id=3, settle=pb.SettlePoppedRequest()))
        peer.asked.put_nowait(pb.LeaseRequest(request_id=4))
        first = [await anext(answers) for _ in range(3)]
        assert by_number(first) == {2: "failure", 3: "settled", 4: "failure"}
        nothing = next(one.failure for one in first if one.request_id == 4)
        assert nothing.kind == failure_pb2.FAILURE_KIND_INVALID
        assert nothing.field == "asked"
        peer.message.set()
        assert by_number([await anext(answers)]) == {1: "popped"}
        peer.asked.put_nowait(None)
        assert [one async for one in answers] == []


async def test_a_stop_answers_what_the_stream_took_and_ends_it_well() -> None:
    peer, draining = Peer(), asyncio.Event()
    async with Background("test") as background:
        answers = Streams(background, draining).run("lease", LeaseStream(peer.popped, peer.settled), peer.requests())
        peer.pop(1, wait_ms=1_000)
        answered = background.asked("answer", following(answers))
        await turns()
        assert peer.waiting == 1
        draining.set()
        await turns()
        peer.pop(2)  # nobody reads it any more
        peer.message.set()  # as the pops of an enode that stops are let go
        assert by_number([await answered, *[one async for one in answers]]) == {1: "popped"}


async def test_what_is_too_much_for_one_stream_is_refused_and_costs_nothing_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease, "REQUESTS_MAX", 2)
    peer, draining, budget = Peer(), asyncio.Event(), MemoryBudget()
    share = budget.share("lease")
    token = _share.set(share)
    try:
        async with Background("test") as background:
            stream = LeaseStream(peer.popped, peer.settled)
            answers = Streams(background, draining).run("lease", stream, peer.requests())
            for number in (1, 2, 3):
                peer.pop(number, wait_ms=1_000)
            refused = await anext(answers)
            assert refused.request_id == 3
            assert refused.failure.kind == failure_pb2.FAILURE_KIND_OVERLOADED
            assert budget.used_bytes == 2 * lease.REQUEST_BYTES
            peer.message.set()
            assert by_number([await anext(answers), await anext(answers)]) == {1: "popped", 2: "popped"}
            assert budget.used_bytes == 0
            peer.asked.put_nowait(None)
            assert [one async for one in answers] == []
    finally:
        _share.reset(token)


async def test_of_a_peer_that_takes_no_answers_no_more_is_read() -> None:
    peer, draining = Peer(), asyncio.Event()
    async with Background("test") as background:
        stream = LeaseStream(peer.popped, peer.settled)
        answers = Streams(background, draining).run("lease", stream, peer.requests())
        peer.pop(1, group="small")
        assert (await anext(answers)).request_id == 1
        peer.pop(2, group="large")
        await turns()
        peer.pop(3)
        await turns()
        assert peer.given == 2, "3 is begun before 2 was taken"
        peer.asked.put_nowait(None)
        assert by_number([one async for one in answers]) == {2: "popped", 3: "popped"}
