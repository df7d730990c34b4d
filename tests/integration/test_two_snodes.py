"""Two snodes and a real Valkey: one membership, one owner for each queue, whichever process stops."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ortoo.common.errors import Conflict
from ortoo.common.process.clock import SystemClock
from ortoo.snode.membership.redis_url import redis_client
from ortoo.snode.membership.store import COMPARE_INTERVAL_S
from ortoo.v1 import consumer_pb2, pull_pb2, session_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.valkey import Valkey, valkey
from tests.integration.push_client import PushClient
from tests.integration.session_client import SessionClient
from tests.integration.snode_calls import Snode


class TwoSnodes(Snode):
    """A cluster whose two snodes share membership."""

    def consumer_at(self, snode: str) -> Any:
        """ConsumerService of one snode."""
        return ConsumerServiceStub(self.cluster.channels.channel_to(self.cluster.address_of(snode)))

    async def client_ids(self, snode: str, group: str = "g") -> list[str]:
        """The members of a group, as a snode sees them."""
        answer = await self.consumer_at(snode).QueryMembers(pull_pb2.QueryMembersRequest(group=group))
        return [member.client_id for member in answer.members]

    async def until(self, snode: str, *expected: str) -> None:
        """Wait until a snode sees these members of g."""
        async with asyncio.timeout(60):
            while await self.client_ids(snode) != list(expected):
                await self.cluster.clock.sleep(0.02)


@contextlib.asynccontextmanager
async def two_snodes(folder: Path, **settings: Any) -> AsyncIterator[tuple[TwoSnodes, Valkey]]:
    """A name server, an enode, two snodes and Valkey."""
    async with valkey(folder / "valkey") as server:
        chosen = {"redis_url": server.url, "membership_timeout_s": 1.0, **settings}
        async with open_cluster(folder, snodes=2, settings={"snode": chosen}) as cluster:
            yield TwoSnodes(cluster), server


async def test_a_second_snode_without_a_shared_store_is_refused(tmp_path: Path) -> None:
    """It would split groups; the refusal names the setting."""
    async with open_cluster(tmp_path) as cluster:
        with pytest.raises(Conflict, match="redis_url"):
            await cluster.open_snode("snode-1")


async def test_membership_is_the_same_at_both_snodes(tmp_path: Path) -> None:
    """E-060, E-042, E-044: consumers join and leave at either snode, and all are notified at once."""
    async with two_snodes(tmp_path) as (running, _), asyncio.timeout(120):
        await running.topic("t", 4)
        async with SessionClient(running, "a") as first:
            await first.consume("g", "t")
            async with SessionClient(running, "b", snode="snode-1") as second:
                await second.consume("g", "t")
                await first.members("g", "a", "b")
                await running.until("snode-0", "a", "b")
                await running.until("snode-1", "a", "b")
            await first.members("g", "a")
            await running.until("snode-1", "a")


async def test_queues_move_between_snodes_without_two_owners(tmp_path: Path) -> None:
    """E-071, E-075: a push session at the other snode gets its queues when the first has released them."""
    async with two_snodes(tmp_path) as (running, _), asyncio.timeout(120):
        await running.topic("t", 4)
        async with PushClient(running, "g", "t", client_id="a", from_beginning=True) as first:
            assert len((await first.queues(4)).queues) == 4
            async with PushClient(running, "g", "t", client_id="b", snode="snode-1", from_beginning=True) as second:
                mine, theirs = await first.queues(2), await second.queues(2)
                assert not {str(q) for q in mine.queues} & {str(q) for q in theirs.queues}
                await running.publish("t", b"x", queue=theirs.queues[0])
                assert (await second.delivery()).queue == theirs.queues[0]
            await first.queues(4)
            await running.publish("t", b"y", queue=theirs.queues[0])
            while (await first.delivery()).queue != theirs.queues[0]:
                pass


async def test_members_of_a_lost_snode_are_gone_and_a_client_that_returns_takes_its_place(tmp_path: Path) -> None:
    """E-106, E-240: consumers of a snode that ends are removed. A client that connects elsewhere is there at once."""
    async with two_snodes(tmp_path) as (running, _), asyncio.timeout(120):
        await running.topic("t", 2)
        async with (
            SessionClient(running, "a") as watching,
            SessionClient(running, "b", snode="snode-1") as moving,
            SessionClient(running, "c", snode="snode-1") as staying,
        ):
            for client in (watching, moving, staying):
                await client.consume("g", "t")
            await watching.members("g", "a", "b", "c")
            async with SessionClient(running, "b") as again:
                await again.consume("g", "t")
                assert (await moving.event("closed")).reason == consumer_pb2.CLOSE_REASON_REPLACED
                await running.cluster.close("snode-1")
                await running.until("snode-0", "a", "b")


async def test_consumers_go_on_while_the_store_is_away_and_membership_heals(tmp_path: Path) -> None:
    """The last known members stay, own changes count, deliveries continue; with the store both snodes agree again."""
    async with two_snodes(tmp_path) as (running, server), asyncio.timeout(60):
        await running.topic("t", 2)
        async with (
            SessionClient(running, "a") as first,
            SessionClient(running, "b", snode="snode-1") as second,
            PushClient(running, "h", "t", client_id="p", from_beginning=True) as pushed,
        ):
            await first.consume("g", "t")
            await second.consume("g", "t")
            await first.members("g", "a", "b")
            await server.stop()
            async with SessionClient(running, "c", snode="snode-1") as third:
                await third.consume("g", "t")
                await running.until("snode-1", "a", "b", "c")
                await running.until("snode-0", "a", "b")
                await running.publish("t", b"x")
                assert (await pushed.delivery()).batch.count == 1
                await second.say(unregister_consumer=session_pb2.UnregisterConsumer(group="g"))
                await server.start()
                for snode in ("snode-0", "snode-1"):
                    await running.until(snode, "a", "c")


async def test_locks_are_the_same_through_both_snodes(tmp_path: Path) -> None:
    """E-132: a lock taken through one snode is seen through the other."""
    async with two_snodes(tmp_path) as (running, _), asyncio.timeout(120):
        await running.topic("t")
        queue = pull_pb2.LockQueuesRequest(group="g", client_id="a").queues.add(topic="t", enode="enode-0")
        for snode, client_id, granted in (("snode-0", "a", 1), ("snode-1", "b", 0), ("snode-1", "a", 1)):
            request = pull_pb2.LockQueuesRequest(group="g", client_id=client_id, queues=[queue])
            assert len((await running.consumer_at(snode).LockQueues(request)).granted) == granted


async def test_membership_is_whole_again_after_the_store_was_emptied(tmp_path: Path) -> None:
    """After FLUSHALL both snodes know all members long before they compare versions, and every queue has one owner."""
    async with two_snodes(tmp_path) as (running, server), asyncio.timeout(120):
        await running.topic("t", 4)
        async with (
            PushClient(running, "g", "t", client_id="a") as first,
            PushClient(running, "g", "t", client_id="b", snode="snode-1") as second,
        ):
            for snode in ("snode-0", "snode-1"):
                await running.until(snode, "a", "b")
            client = redis_client(server.url)
            await client.flushall()
            await client.aclose()
            # Each considers the other dead at its next beat, until both have announced their members again.
            async with asyncio.timeout(COMPARE_INTERVAL_S * 0.75):
                while sorted(await members_stored(server)) != ["a", "b"]:
                    await running.cluster.clock.sleep(0.02)
                for snode in ("snode-0", "snode-1"):
                    await running.until(snode, "a", "b")
            assert first.call.done() is second.call.done() is False


async def test_who_waits_for_the_store_can_be_called_off_at_any_moment(tmp_path: Path) -> None:
    """A snode that is stopped in the middle of a beat stops; Python 3.11's `asyncio.wait_for` swallowed that."""
    async with valkey(tmp_path / "valkey") as server, contextlib.aclosing(redis_client(server.url)) as client:

        async def beat() -> None:
            await client.ping()
            await asyncio.get_running_loop().create_future()

        await client.ping()
        for turns in range(20):
            task = asyncio.get_running_loop().create_task(beat())
            for _ in range(turns):
                await SystemClock().sleep(0)
            task.cancel()
            done, _ = await asyncio.wait({task}, timeout=5)
            assert done, f"cancelled after {turns} turns of the loop it does not end"


async def members_stored(server: Valkey) -> list[str]:
    """The client ids of g in the store."""
    client = redis_client(server.url)
    try:
        return list(await client.hkeys("ortoo/members/g"))
    finally:
        await client.aclose()
