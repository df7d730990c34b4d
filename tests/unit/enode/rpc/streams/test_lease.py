"""The Lease stream: independent answers, a graceful shutdown, and waiting pops that block no other request."""

import asyncio
from collections.abc import AsyncIterator

from ortoo.common.errors import Conflict
from ortoo.common.grpc.layers import call_memory
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import SENDERS_PERCENT, MemoryBudget
from ortoo.enode.rpc.streams import independent
from ortoo.enode.rpc.streams.lease import LeaseStream
from ortoo.enode.rpc.streams.runner import StreamRunner
from ortoo.v1 import enode_pop_pb2 as pb
from ortoo.v1 import failure_pb2

POPS = 20_000


class Peer:
    """An snode that pops and settles; the group of a request selects its result."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[pb.LeaseRequest | None] = asyncio.Queue()
        self.message = asyncio.Event()
        """Set when waiting pops find a message."""
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
        return pb.PopQueuesResponse(blocked_reason="x" * (independent.BYTES_MAX if request.group == "large" else 1))

    async def settled(self, request: pb.SettlePoppedRequest) -> pb.SettlePoppedResponse:
        return pb.SettlePoppedResponse(stale=[pb.StaleOffset(offset=7)])


async def turns() -> None:
    """Let all tasks run until they wait."""
    for _ in range(20):
        await SystemClock().sleep(0)


async def following(answers: AsyncIterator[pb.LeaseResponse]) -> pb.LeaseResponse:
    return await anext(answers)


def by_number(answers: list[pb.LeaseResponse]) -> dict[int, str | None]:
    return {one.request_id: one.WhichOneof("result") for one in answers}


async def test_a_pop_that_waits_holds_up_nobody_and_a_failure_is_one_requests_own() -> None:
    """Later requests are answered first; an empty request is refused."""
    peer, draining = Peer(), asyncio.Event()
    async with Background("test") as background:
        answers = StreamRunner(background, draining).run(
            "lease", LeaseStream(peer.popped, peer.settled), peer.requests()
        )
        peer.pop(1, wait_ms=1_000)
        peer.pop(2, group="refused")
        peer.asked.put_nowait(pb.LeaseRequest(request_id=3, settle=pb.SettlePoppedRequest()))
        peer.asked.put_nowait(pb.LeaseRequest(request_id=4))
        assert await following(answers) == pb.LeaseResponse()
        first = [await following(answers) for _ in range(3)]
        assert by_number(first) == {2: "failure", 3: "settled", 4: "failure"}
        nothing = next(one.failure for one in first if one.request_id == 4)
        assert nothing.kind == failure_pb2.FAILURE_KIND_INVALID
        assert nothing.field == "request"
        peer.message.set()
        assert by_number([await anext(answers)]) == {1: "popped"}
        peer.asked.put_nowait(None)
        assert [one async for one in answers] == []


async def test_a_stop_answers_what_the_stream_took_and_ends_it_well() -> None:
    """Requests sent later get no answer."""
    peer, draining = Peer(), asyncio.Event()
    async with Background("test") as background:
        answers = StreamRunner(background, draining).run(
            "lease", LeaseStream(peer.popped, peer.settled), peer.requests()
        )
        peer.pop(1, wait_ms=1_000)
        assert await following(answers) == pb.LeaseResponse()
        answered = background.start_future("answer", following(answers))
        await turns()
        assert peer.waiting == 1
        draining.set()
        await turns()
        peer.pop(2)  # it is not read any more
        peer.message.set()  # a shutdown of the enode ends waiting pops like this
        assert by_number([await answered, *[one async for one in answers]]) == {1: "popped"}


async def test_of_a_peer_that_takes_no_answers_no_more_is_read() -> None:
    """Unread answers count towards the limit."""
    peer, draining = Peer(), asyncio.Event()
    async with Background("test") as background:
        stream = LeaseStream(peer.popped, peer.settled)
        answers = StreamRunner(background, draining).run("lease", stream, peer.requests())
        peer.pop(1, group="small")
        assert await following(answers) == pb.LeaseResponse()
        assert (await anext(answers)).request_id == 1
        peer.pop(2, group="large")
        await turns()
        peer.pop(3)
        await turns()
        assert peer.given == 2, "3 is begun before 2 was taken"
        peer.asked.put_nowait(None)
        assert by_number([one async for one in answers]) == {2: "popped", 3: "popped"}


async def waiting(_: pb.PopQueuesRequest) -> pb.PopQueuesResponse:
    """Never find anything."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError


async def settled(_: pb.SettlePoppedRequest) -> pb.SettlePoppedResponse:
    """Settle all messages."""
    return pb.SettlePoppedResponse()


async def answers_behind(pops: int) -> dict[int, str | None]:
    """Request number to result, of a settlement behind `pops` waiting pops."""

    async def requests() -> AsyncIterator[pb.LeaseRequest]:
        for number in range(1, pops + 1):
            yield pb.LeaseRequest(request_id=number, pop=pb.PopQueuesRequest())
        yield pb.LeaseRequest(request_id=pops + 1, settle=pb.SettlePoppedRequest())
        await asyncio.get_running_loop().create_future()

    ended: dict[int, str | None] = {}
    async with asyncio.timeout(60), Background("test") as background:
        running = StreamRunner(background, asyncio.Event()).run("lease", LeaseStream(waiting, settled), requests())
        async for answer in running:
            ended[answer.request_id] = answer.WhichOneof("result")
            if answer.request_id > pops:
                break
        await running.aclose()  # type: ignore[attr-defined]  # it is a generator
    return ended


async def test_a_settlement_is_taken_behind_any_number_of_pops_that_wait() -> None:
    """The stream carries any number of the snode's consumers; the first answer confirms the stream."""
    assert await answers_behind(POPS) == {0: None, POPS + 1: "settled"}


async def test_a_settlement_is_taken_from_what_memory_is_kept_for_single_requests() -> None:
    """As for a separate call: consumers can acknowledge although many others do not read their answers."""
    budget = MemoryBudget(3 << 30)
    budget.share("unread").draw_unchecked(budget.bytes_max * (100 - SENDERS_PERCENT) // 100 + 1)
    token = call_memory._share.set(budget.share("Lease"))
    try:
        assert await answers_behind(0) == {0: None, 1: "settled"}
    finally:
        call_memory._share.reset(token)
