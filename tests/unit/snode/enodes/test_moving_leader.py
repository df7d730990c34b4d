"""A change of leader: requests that were not taken go to the next one in order, others have an unknown outcome."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from ortoo.common.errors import NOT_ACCEPTED_FIELD, NotLeader, Unavailable
from ortoo.common.errors.status import failure_of
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.snode.enodes.grpc_link import GrpcEnodeLink
from ortoo.snode.enodes.grpc_links import GrpcLinks
from ortoo.v1 import enode_pb2
from ortoo.v1.enode_pb2_grpc import EnodeServiceServicer, add_EnodeServiceServicer_to_server

BATCH = encode([Message(b"body")], now_ms=0)
Verdict = Callable[[int], NotLeader | None]


class Replica(EnodeServiceServicer):
    """A process that takes appends, or reports that it does not lead, as the test sets it."""

    def __init__(self) -> None:
        self.address = ""
        self.taken: list[int] = []
        """Queue ids, for each append that was stored."""
        self.asked = 0
        self.moved: NotLeader | None = None
        self.answers = asyncio.Event()
        self.answers.set()

    async def Append(self, requests: AsyncIterator[enode_pb2.AppendRequest], context: Any) -> AsyncIterator[Any]:
        """Answer each as `moved` is set at that time, as soon as answers may go."""
        async for request in requests:
            self.asked += 1
            await self.answers.wait()
            if self.moved is None:
                self.taken.append(request.queue_id)
                yield enode_pb2.AppendResponse(request_id=request.request_id, first_offset=len(self.taken))
            else:
                yield enode_pb2.AppendResponse(request_id=request.request_id, failure=failure_of(self.moved))

    async def Attach(self, requests: AsyncIterator[enode_pb2.AttachRequest], context: Any) -> AsyncIterator[Any]:
        """Never answer."""
        self.asked += 1
        await asyncio.get_running_loop().create_future()
        yield

    async def WatchHalves(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Never answer."""
        self.asked += 1
        await asyncio.get_running_loop().create_future()
        yield

    async def DescribeQueues(self, request: enode_pb2.DescribeQueuesRequest, context: Any) -> Any:
        """Answer with one queue, or that another replica leads."""
        self.asked += 1
        await self.answers.wait()
        if self.moved is not None:
            raise self.moved
        return enode_pb2.DescribeQueuesResponse(queues=[enode_pb2.QueueRange(queue_id=7)])


@contextlib.asynccontextmanager
async def two_replicas(timeout_s: float = 10.0) -> AsyncIterator[tuple[GrpcLinks, Replica, Replica]]:
    """Two processes, and links of a snode."""
    replicas = Replica(), Replica()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(60))
        for replica in replicas:
            add = lambda server, replica=replica: add_EnodeServiceServicer_to_server(replica, server)  # noqa: E731
            server = await stack.enter_async_context(GrpcServer("127.0.0.1:0", [("ortoo.v1.EnodeService", add)]))
            replica.address = server.address
        channels = await stack.enter_async_context(Channels())
        background = await stack.enter_async_context(Background("test"))
        links = await stack.enter_async_context(
            GrpcLinks(
                channels=channels,
                background=background,
                clock=SystemClock(),
                timeout_s=timeout_s,
                in_flight_bytes_max=1 << 20,
            )
        )
        yield links, *replicas


async def until(done: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    while not done():
        await SystemClock().sleep(0.002)


async def test_what_was_not_taken_is_stored_by_the_next_leader_in_order() -> None:
    """All of many appends succeed, and each queue's are in the order of the calls, later ones last."""
    async with two_replicas() as (links, first, second):
        link = links.to("e", first.address, 1)
        assert await link.append(1, 0, BATCH)
        first.answers.clear()
        sent = [link.append(1, number, BATCH) for number in range(1, 9)]
        await until(lambda: first.asked == 2)
        first.moved = NotLeader(leader_address=second.address, epoch=2)
        first.answers.set()
        await until(lambda: second.asked > 0)
        sent += [links.to("e", first.address, 1).append(1, number, BATCH) for number in range(9, 13)]
        await asyncio.gather(*sent)
        assert (first.taken, second.taken) == ([0], list(range(1, 13)))


STAYS: list[Callable[[GrpcEnodeLink], Coroutine[Any, Any, None]]] = [
    lambda link: link.attach("s", "i", lambda _: None),
    lambda link: link.watch_halves((), lambda _: None),
]


@pytest.mark.parametrize("stay", STAYS, ids=["attached", "for halves"])
async def test_who_stays_with_a_leader_that_hangs_leaves_it_when_another_one_leads(
    stay: Callable[[GrpcEnodeLink], Coroutine[Any, Any, None]],
) -> None:
    """Otherwise the next leader would assume the snode is gone, and free its locks, until the connection breaks."""
    async with two_replicas() as (links, first, second), Background("staying") as background:
        staying = background.start_future("stay", stay(links.to("e", first.address, 1)))
        await until(lambda: first.asked > 0)
        again = background.start_future("stay", stay(links.to("e", second.address, 2)))
        with pytest.raises(Unavailable, match="the link to enode e was closed"):
            await staying
        await until(lambda: second.asked > 0)
        assert not again.done()


async def test_later_appends_wait_behind_what_is_held() -> None:
    """While no leader is known, a new append does not overtake; a known leader releases all."""
    async with two_replicas() as (links, first, second):
        link = links.to("e", first.address, 1)
        first.moved = NotLeader(epoch=2)
        sent = [link.append(1, 1, BATCH)]
        await until(lambda: links.held_appends("e").is_holding)
        sent += [links.to("e", first.address, 1).append(1, number, BATCH) for number in (2, 3)]
        assert not any(one.done() for one in sent)
        links.to("e", second.address, 2)
        await asyncio.gather(*sent)
        assert (first.taken, second.taken) == ([], [1, 2, 3])


async def test_a_newer_epoch_makes_what_is_on_its_way_unknown_at_once() -> None:
    """Appends to the older leader fail, not as "not taken"; its late answers change nothing. Reads are repeated."""
    async with two_replicas() as (links, first, second):
        link = links.to("e", first.address, 1)
        first.answers.clear()
        sent, asked = link.append(1, 1, BATCH), asyncio.gather(link.describe_queues(1))
        await until(lambda: first.asked == 2)
        newer = links.to("e", second.address, 2)
        with pytest.raises(Unavailable, match="the outcome is unknown") as caught:
            await sent
        assert caught.value.field != NOT_ACCEPTED_FIELD
        await asked
        first.answers.set()
        await newer.append(1, 2, BATCH)
        assert second.taken == [2]


async def test_the_same_leader_in_a_newer_epoch_is_another_one() -> None:
    """It may have lost uncommitted data, so requests to its former term have an unknown outcome."""
    async with two_replicas() as (links, first, _):
        first.answers.clear()
        sent = links.to("e", first.address, 1).append(1, 1, BATCH)
        await until(lambda: first.asked == 1)
        newer = links.to("e", first.address, 2)
        with pytest.raises(Unavailable, match="unknown"):
            await sent
        first.answers.set()
        assert await newer.append(1, 2, BATCH)


async def test_news_of_a_former_leader_are_old() -> None:
    """An outdated name server does not lead back while the newer leader is connected."""
    async with two_replicas() as (links, first, second):
        newer = links.to("e", second.address, 2)
        await newer.append(1, 1, BATCH)
        assert links.to("e", first.address, 1) is newer
        assert links.to("e", first.address, 2) is newer


async def test_calls_are_asked_again_where_the_enode_is_led() -> None:
    """By the address that the former leader gives, or that another request learns meanwhile."""
    async with two_replicas() as (links, first, second):
        link = links.to("e", first.address, 1)
        first.moved = NotLeader(leader_address=second.address, epoch=2)
        assert [one.queue_id for one in await link.describe_queues(1)] == [7]
        second.moved, first.moved = NotLeader(epoch=3), None
        asked = asyncio.gather(links.to("e", second.address, 2).describe_queues(1))
        await until(lambda: second.asked > 1)
        links.redirect("e", NotLeader(leader_address=first.address, epoch=3))
        assert [one.queue_id for one in (await asked)[0]] == [7]


async def test_without_a_leader_requests_fail_when_their_time_is_over() -> None:
    """Their error says that nothing was stored, so a client may send the same elsewhere."""
    async with two_replicas(timeout_s=0.3) as (links, first, _):
        first.moved = NotLeader("there is no leader", epoch=2)
        link = links.to("e", first.address, 1)
        for asked in (link.append(1, 1, BATCH), link.describe_queues(1)):
            with pytest.raises(NotLeader, match="there is no leader") as caught:
                await asked
            assert caught.value.field == NOT_ACCEPTED_FIELD


async def test_what_never_reached_a_dead_leader_waits_for_the_next_one() -> None:
    """The former leader is down; unsent requests succeed if another one leads in time."""
    async with two_replicas() as (links, _, second):
        link = links.to("e", "127.0.0.1:1", 1)
        sent = [link.append(1, number, BATCH) for number in range(3)]
        await until(lambda: links.held_appends("e").is_holding)
        sent.append(links.to("e", "127.0.0.1:1", 1).append(1, 3, BATCH))
        links.to("e", second.address, 2)
        await asyncio.gather(*sent)
        assert second.taken == [0, 1, 2, 3]
