"""Pops and settlements over one stream: a failure of one affects the others no more than with separate calls."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ortoo.common.errors import NotLeader, Unavailable
from ortoo.common.groups.pop import Finish, LeasePart, PopRequest
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.snode.enodes.grpc_link import GrpcEnodeLink
from ortoo.snode.enodes.grpc_links import GrpcLinks
from ortoo.v1 import enode_pop_pb2 as pb
from ortoo.v1.enode_pb2_grpc import EnodeServiceServicer, add_EnodeServiceServicer_to_server

PART = LeasePart(0, 1, ((0, 1),))


class Replica(EnodeServiceServicer):
    """An enode whose pops wait until the test answers them; it answers settlements if the test sets it."""

    def __init__(self) -> None:
        self.address = ""
        self.moved: NotLeader | None = None
        self.pops = 0
        self.settled = 0
        self.settles = True
        self.streams = 0
        self.there = asyncio.Event()
        """Set when the messages for the waiting pops are there."""

    async def Lease(self, requests: AsyncIterator[pb.LeaseRequest], context: Any) -> AsyncIterator[Any]:
        """Answer in the order of the requests to be answered."""
        self.streams += 1
        if self.moved is not None:
            raise self.moved
        yield pb.LeaseResponse()
        waiting: list[int] = []
        async for request in requests:
            if request.WhichOneof("request") == "settle":
                self.settled += 1
                if self.settles:
                    yield pb.LeaseResponse(request_id=request.request_id, settled=pb.SettlePoppedResponse())
            else:
                self.pops += 1
                waiting.append(request.request_id)
            while waiting and self.there.is_set():
                yield pb.LeaseResponse(request_id=waiting.pop(), popped=pb.PopQueuesResponse(blocked_reason="seen"))


class Older(EnodeServiceServicer):
    """An enode of a version without Lease."""

    def __init__(self) -> None:
        self.address = ""

    async def PopQueues(self, request: pb.PopQueuesRequest, context: Any) -> pb.PopQueuesResponse:
        """No messages."""
        return pb.PopQueuesResponse(blocked_reason="seen")

    async def SettlePopped(self, request: pb.SettlePoppedRequest, context: Any) -> pb.SettlePoppedResponse:
        """All of it is durable but one."""
        return pb.SettlePoppedResponse(stale=[pb.StaleOffset(queue_id=0, offset=7, lease_number=1)])


@contextlib.asynccontextmanager
async def served(*replicas: Any, timeout_s: float = 10.0) -> AsyncIterator[tuple[GrpcLinks, Channels]]:
    """One process for each server, and links of a snode."""
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(60))
        for replica in replicas:
            add = lambda server, replica=replica: add_EnodeServiceServicer_to_server(replica, server)  # noqa: E731
            server = await stack.enter_async_context(
                GrpcServer("127.0.0.1:0", [("ortoo.v1.EnodeService", add)], grace_s=0.0)
            )
            replica.address = server.address
        channels = await stack.enter_async_context(Channels())
        background = await stack.enter_async_context(Background("test"))
        links = GrpcLinks(
            channels=channels,
            background=background,
            clock=SystemClock(),
            timeout_s=timeout_s,
            in_flight_bytes_max=1 << 20,
        )
        yield await stack.enter_async_context(links), channels


def popping(link: GrpcEnodeLink, wait_ms: int = 30_000) -> "asyncio.Future[list[Any]]":
    """A pop in progress."""
    return asyncio.gather(*[link.pop(PopRequest(1, "g", (0,), 1, 60_000, 0, wait_ms))])


def settling(link: GrpcEnodeLink) -> "asyncio.Future[list[Any]]":
    """An ack in progress."""
    return asyncio.gather(*[link.settle(1, "g", [PART], Finish())])


async def until(done: Any) -> None:
    """Wait until a condition holds."""
    while not done():
        await SystemClock().sleep(0.002)


async def test_what_a_member_did_not_read_before_it_said_who_leads_is_asked_there() -> None:
    """Of many requests sent at once, those too that were not even written when the stream was refused."""
    first, second = Replica(), Replica()
    async with served(first, second) as (links, _):
        link = links.to("e", first.address, 1)
        first.moved = NotLeader(leader_address=second.address, epoch=2)
        await asyncio.gather(*(settling(link) for _ in range(500)))
        assert second.settled == 500


async def test_a_settlement_that_takes_too_long_fails_no_pop_that_waits() -> None:
    """Each request has its own timeout."""
    replica = Replica()
    async with served(replica, timeout_s=2.0) as (links, _):
        link = links.to("e", replica.address)
        waiting = popping(link)
        await until(lambda: replica.pops)
        replica.settles = False
        with pytest.raises(Unavailable, match="2000 ms"):
            await settling(link)
        assert not waiting.done()
        replica.settles = True
        replica.there.set()
        await settling(link)
        assert (await waiting)[0].blocked_reason == "seen"
        assert replica.streams == 1


async def test_a_channel_that_is_closed_fails_what_waits() -> None:
    """As when certificates were renewed twice. A request fails after the timeout of requests, and not of its poll."""
    replica = Replica()
    async with served(replica, timeout_s=1.0) as (links, channels):
        link = links.to("e", replica.address)
        waiting = popping(link)
        await until(lambda: replica.pops)
        async with asyncio.timeout(60):
            await channels.channel_to(replica.address).close()
            with pytest.raises(Unavailable):
                await waiting


async def test_an_enode_of_an_older_version_is_asked_by_calls() -> None:
    """Roles of two versions work together, in any order of restarts."""
    older = Older()
    async with served(older) as (links, _):
        link = links.to("e", older.address)
        popped = await asyncio.gather(*(popping(link) for _ in range(50)))
        assert {one[0].blocked_reason for one in popped} == {"seen"}
        assert [one.offset for one in (await settling(link))[0]] == [7]


async def test_a_link_that_is_broken_off_takes_no_request() -> None:
    """Its users get an error, and do not wait for ever."""
    replica = Replica()
    async with served(replica) as (links, _):
        link = links.to("e", replica.address)
        await settling(link)
        link.close()
        link.close_leases()
        async with asyncio.timeout(60):
            with pytest.raises(Unavailable, match="disconnected before"):
                await settling(link)


async def test_a_pop_that_a_former_leader_does_not_answer_is_sent_to_the_next() -> None:
    """Its answer may come within a grace period. Later the next leader is asked, which knows the attempt."""
    first, second = Replica(), Replica()
    second.there.set()
    async with served(first, second) as (links, _):
        popped = popping(links.to("e", first.address, 1))
        await until(lambda: first.pops == 1)
        links.to("e", second.address, 2)
        async with asyncio.timeout(60):
            await popped
        assert (first.pops, second.pops) == (1, 1)
