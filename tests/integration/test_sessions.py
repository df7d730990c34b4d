"""Sessions of clients: registration, membership and its notifications, and all their ends."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.v1 import consumer_pb2, failure_pb2, namesrv_pb2, pull_pb2, session_pb2, topic_pb2
from tests.integration.session_client import SessionClient
from tests.integration.snode_calls import Snode, open_snode_cluster


async def client_ids(running: Snode, group: str) -> list[str]:
    """The members of a group, as any client sees them."""
    answer = await running.consumer.QueryMembers(pull_pb2.QueryMembersRequest(group=group))
    return [member.client_id for member in answer.members]


async def until_members(running: Snode, group: str, *expected: str) -> None:
    """Wait until a group has these members."""
    async with asyncio.timeout(60):
        while await client_ids(running, group) != list(expected):
            await running.cluster.clock.sleep(0.01)


async def test_one_client_is_in_several_groups_and_leaves_one(tmp_path: Path) -> None:
    """E-040, E-041: a session is listed in both groups, as consumer and producer. Leaving one keeps the other."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        async with SessionClient(running, "c1", language="python", client_version="1") as client:
            await client.consume("g1", "t")
            await client.consume("g2", "t")
            await client.say(register_producer=session_pb2.RegisterProducer(group="p"))
            assert await client_ids(running, "g1") == await client_ids(running, "g2") == ["c1"]
            left = await client.say(unregister_consumer=session_pb2.UnregisterConsumer(group="g1"))
            await client.answer(left)
            assert await client_ids(running, "g1") == []
            assert await client_ids(running, "g2") == ["c1"]
            answer = await running.consumer.QueryMembers(pull_pb2.QueryMembersRequest(group="g2"))
            assert (answer.members[0].language, answer.members[0].session_id) == ("python", client.session_id)


async def test_members_hear_of_joins_and_of_every_kind_of_leaving(tmp_path: Path) -> None:
    """E-042, E-043, E-044, E-050, E-190: joining, unregistering and a broken connection are notified at once."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        async with SessionClient(running, "a") as first:
            await first.consume("g", "t")
            async with SessionClient(running, "b") as second:
                registered = await second.consume("g", "t")
                assert list(registered.members.client_ids) == ["a", "b"]
                changed = await first.members("g", "a", "b")
                assert [list(one.topics) for one in changed.member_topics] == [["t"], ["t"]]
                await second.say(unregister_consumer=session_pb2.UnregisterConsumer(group="g"))
                await first.members("g", "a")
                await second.consume("g", "t")
                await first.members("g", "a", "b")
            await first.members("g", "a")
        await until_members(running, "g")


async def test_a_member_whose_session_reopens_stays_in_its_groups(tmp_path: Path) -> None:
    """As at the end of a session by its age: other members are notified of no departure."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        async with SessionClient(running, "a") as first:
            await first.consume("g", "t")
            async with SessionClient(running, "b") as second:
                await second.consume("g", "t")
                await first.members("g", "a", "b")
                await second.say(close=consumer_pb2.CloseSession(reopens=True))
                await second.event("closed")
            async with SessionClient(running, "b") as second, SessionClient(running, "c") as third:
                await second.consume("g", "t")
                await third.consume("g", "t")
                found: list[list[str]] = []
                while not found or "c" not in found[-1]:
                    found.append(list((await first.event("members_changed")).client_ids))
                assert all("b" in one for one in found), found


async def test_silence_ends_a_session_like_everything_else(tmp_path: Path) -> None:
    """E-045: a session that is silent for too long is no longer listed, and the others are notified."""
    async with open_snode_cluster(tmp_path, session_expiry_s=0.5, sweep_interval_s=0.05) as running:
        await running.topic("t")
        async with (
            asyncio.timeout(60),
            SessionClient(running, "a") as first,
            SessionClient(running, "b") as second,
        ):
            await first.consume("g", "t")
            await second.consume("g", "t")
            await first.members("g", "a", "b")

            async def beat() -> None:
                while True:
                    await first.say(heartbeat=consumer_pb2.Heartbeat())
                    await running.cluster.clock.sleep(0.1)

            beating = asyncio.get_running_loop().create_task(beat())
            await first.members("g", "a")
            beating.cancel()
            assert (await second.event("closed")).reason == consumer_pb2.CLOSE_REASON_EXPIRED


async def test_saying_the_same_again_is_no_news_and_a_new_name_replaces_the_old(tmp_path: Path) -> None:
    """E-047, E-048: a hundred refreshing registrations notify no client. Another client id replaces the old one."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        async with SessionClient(running, "a") as watching, SessionClient(running, "b") as client:
            await watching.consume("g", "t")
            await client.consume("g", "t")
            version = (await watching.members("g", "a", "b")).version
            for _ in range(100):
                await client.consume("g", "t")
                await client.say(heartbeat=consumer_pb2.Heartbeat())
            answer = await running.consumer.QueryMembers(pull_pb2.QueryMembersRequest(group="g"))
            assert (answer.version, list(answer.client_ids)) == (version, ["a", "b"])
            await client.say(hello=session_pb2.Hello(client_id="z"))
            await watching.members("g", "a", "z")
            assert await client_ids(running, "g") == ["a", "z"]


async def test_opening_and_closing_without_a_word_is_harmless(tmp_path: Path) -> None:
    """E-046: calls that end before they identify the client leave nothing behind."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        for _ in range(100):
            calls = [SessionClient(running).call for _ in range(10)]
            for call in calls:
                call.cancel()
        async with SessionClient(running, "a") as client:
            await client.consume("g", "t")
            assert await client_ids(running, "g") == ["a"]


async def test_a_switched_off_group_is_told_nothing(tmp_path: Path) -> None:
    """E-049: without notification no event comes. A query shows the group members."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        await running.admin.PutGroup(
            namesrv_pb2.PutGroupRequest(
                group=topic_pb2.Group(name="g", consume_enabled=True, notify_members_changed=False)
            )
        )
        async with SessionClient(running, "a") as first, SessionClient(running, "b") as second:
            await first.consume("g", "t")
            await second.consume("g", "t")
            assert await client_ids(running, "g") == ["a", "b"]
            await first.consume("h", "t")
            await first.members("h", "a")
            assert not [one for one in first.others if one.WhichOneof("event") == "members_changed"]


async def test_subscriptions_change_by_version(tmp_path: Path) -> None:
    """E-051, E-052: added and removed topics are notified. An older version is ignored, a newer one replaces."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        await running.topic("u")

        async def wanted() -> dict[str, str]:
            answer = await running.consumer.QueryMembers(pull_pb2.QueryMembersRequest(group="g"))
            return {one.topic: one.tag_expression for one in answer.members[0].subscriptions}

        async with SessionClient(running, "a") as client:
            await client.consume("g", "t:x", version=5)
            await client.consume("g", "t:y", "u", version=4)
            assert await wanted() == {"t": "x", "u": ""}
            await client.consume("g", "t:z", version=6)
            assert await wanted() == {"t": "z"}
            while [list(one.topics) for one in (await client.members("g", "a")).member_topics] != [["t"]]:
                pass


async def test_one_registration_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    """E-059: an unknown topic, a bad filter and a forbidden broadcast are answered by name."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        await running.admin.PutGroup(
            namesrv_pb2.PutGroupRequest(group=topic_pb2.Group(name="g", consume_enabled=True, broadcast_enabled=False))
        )
        async with SessionClient(running, "a") as client:
            kinds = [
                (await client.consume("g", "nowhere")).failure.kind,
                (await client.consume("g", "t", message_model=consumer_pb2.MESSAGE_MODEL_BROADCAST)).failure.kind,
                (await client.consume("g@", "t")).failure.kind,
                (await client.consume("g", "t")).failure.kind,
            ]
            assert kinds == [
                failure_pb2.FAILURE_KIND_NOT_FOUND,
                failure_pb2.FAILURE_KIND_FORBIDDEN,
                failure_pb2.FAILURE_KIND_INVALID,
                failure_pb2.FAILURE_KIND_UNSPECIFIED,
            ]


async def test_what_a_client_names_at_its_registration_is_drawn_from_the_budget_as_long_as_it_is_a_member(
    tmp_path: Path,
) -> None:
    """G17: a refused registration costs nothing, and a removed one releases its memory."""
    queues = [topic_pb2.Queue(topic="t", enode="e", queue_id=number) for number in range(10_000)]
    async with open_snode_cluster(tmp_path, memory_budget_bytes=64 << 20) as running, asyncio.timeout(60):
        await running.topic("t")
        async with SessionClient(running, "a") as client:
            kinds: list[int] = []
            while not kinds or (not kinds[-1] and len(kinds) < 30):
                answer = await client.consume(f"g{len(kinds)}", "t", configured_queues=queues)
                kinds.append(answer.failure.kind)
            assert kinds[-1] == failure_pb2.FAILURE_KIND_OVERLOADED
            assert (await client.consume("g0", "nowhere")).failure.kind == failure_pb2.FAILURE_KIND_NOT_FOUND
            again = await client.consume("g", "t", configured_queues=queues)
            assert again.failure.kind == failure_pb2.FAILURE_KIND_OVERLOADED
            await client.answer(await client.say(unregister_consumer=session_pb2.UnregisterConsumer(group="g0")))
            assert not (await client.consume("g", "t", configured_queues=queues)).failure.kind


async def test_a_client_that_connects_again_takes_its_own_place(tmp_path: Path) -> None:
    """The newer session of one client id stays, the older one gets the reason of its end."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        async with SessionClient(running, "a") as first, SessionClient(running, "a") as second:
            await first.consume("g", "t")
            await second.consume("g", "t")
            assert (await first.event("closed")).reason == consumer_pb2.CLOSE_REASON_REPLACED
            answer = await running.consumer.QueryMembers(pull_pb2.QueryMembersRequest(group="g"))
            assert [member.session_id for member in answer.members] == [second.session_id]


async def test_groups_are_not_made_by_use_where_that_is_off(tmp_path: Path) -> None:
    """E-053: with auto-creation off an unknown group is refused, and nothing is created."""
    async with open_snode_cluster(tmp_path, auto_create_groups=False) as running, asyncio.timeout(60):
        await running.topic("t")
        async with SessionClient(running, "a") as client:
            assert (await client.consume("g", "t")).failure.kind == failure_pb2.FAILURE_KIND_NOT_FOUND
        assert not (await running.admin.ListGroups(namesrv_pb2.ListGroupsRequest())).groups


async def test_a_stopping_snode_says_so(tmp_path: Path) -> None:
    """A graceful stop ends sessions with its reason, so that clients connect elsewhere at once."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60), SessionClient(running, "a") as client:
        closing: Any = asyncio.get_running_loop().create_task(running.cluster.close("snode-0"))
        assert (await client.event("closed")).reason == consumer_pb2.CLOSE_REASON_SHUTDOWN
        await closing


async def test_the_first_word_must_be_hello(tmp_path: Path) -> None:
    """Any other first request is refused by name."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        client = SessionClient(running)
        await client.say(heartbeat=consumer_pb2.Heartbeat())
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.call.read()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
