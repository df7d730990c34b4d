"""Operators' calls to a snode about clients, groups and their offsets."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.common.errors import Forbidden
from ortoo.v1 import (
    admin_pb2,
    client_pb2,
    consumer_pb2,
    failure_pb2,
    flow_control_pb2,
    namesrv_pb2,
    pull_pb2,
    session_pb2,
)
from tests.integration.push_client import PushClient
from tests.integration.session_client import SessionClient
from tests.integration.snode_calls import Snode, batch_request, open_snode_cluster, queue

SEEN: list[str] = []


class Counting:
    """An interceptor that counts the calls that it sees."""

    async def before(self, call: Any) -> None:
        """Count, and refuse a topic of a certain name."""
        SEEN.append(f"before {call.method}")
        if call.topic == "forbidden":
            raise Forbidden("nobody sends there", field="topic")

    async def after(self, call: Any) -> None:
        """Count."""
        SEEN.append(f"after {call.method}")

    async def on_error(self, call: Any, error: BaseException) -> None:
        """Count."""
        SEEN.append(f"error {call.method}")


async def refusal(call: Any) -> grpc.StatusCode:
    """The status with which a call is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code()


async def commit(running: Snode, group: str, *offsets: int) -> None:
    """Commit offsets of queues 0, 1... of t."""
    rows = [pull_pb2.ConsumerOffset(queue=queue("t", number), offset=o) for number, o in enumerate(offsets)]
    await running.consumer.CommitOffsets(pull_pb2.CommitConsumerOffsetsRequest(group=group, offsets=rows))


async def stored(running: Snode, group: str) -> list[int]:
    """The offsets of a group in t."""
    answer = await running.consumer.QueryOffsets(pull_pb2.QueryConsumerOffsetsRequest(group=group, topic="t"))
    return [one.offset for one in answer.offsets]


async def test_a_group_keeps_what_was_changed(tmp_path: Path) -> None:
    """E-057, E-058: a new cluster has no groups. A group that was switched off stays off over restarts."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        await running.topic("t")
        assert not (await running.admin.ListGroups(namesrv_pb2.ListGroupsRequest())).groups
        changed = await running.admin.UpdateGroup(
            client_pb2.UpdateGroupRequest(name="g", consume_enabled=False, slow_consumer_threshold_messages=7)
        )
        assert (changed.group.consume_enabled, changed.group.attempts_max) == (False, 16)
        await running.cluster.close("snode-0")
        await running.cluster.open_snode("snode-0")
        async with SessionClient(running, "a") as client:
            refused = await client.consume("g", "t")
            assert refused.failure.kind == failure_pb2.FAILURE_KIND_CONFLICT
            await running.admin.UpdateGroup(client_pb2.UpdateGroupRequest(name="g", consume_enabled=True))
            assert not (await client.consume("g", "t")).HasField("failure")
        described = await running.admin.DescribeGroup(client_pb2.DescribeGroupRequest(name="g"))
        assert described.group.slow_consumer_threshold_messages == 7


async def test_clients_and_consumers_are_listed(tmp_path: Path) -> None:
    """E-040, E-050, E-055: clients with their groups, the consumers of a group, the groups of a topic."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        await running.topic("t")
        await running.topic("u")
        async with SessionClient(running, "a") as first, SessionClient(running, "b") as second:
            await first.consume("g", "t")
            await second.consume("h", "t", "u")
            await second.answer(await second.say(register_producer=session_pb2.RegisterProducer(group="p")))
            listed = (await running.admin.ListClients(client_pb2.ListClientsRequest())).clients
            assert [(c.client_id, list(c.consumer_groups), list(c.producer_groups)) for c in listed] == [
                ("a", ["g"], []),
                ("b", ["h"], ["p"]),
            ]
            only = (await running.admin.ListClients(client_pb2.ListClientsRequest(group="p"))).clients
            assert [c.client_id for c in only] == ["b"]
            consumers = (await running.admin.ListConsumers(client_pb2.ListConsumersRequest(group="g"))).consumers
            assert [c.client_id for c in consumers] == ["a"]
            request = client_pb2.ListTopicGroupsRequest(topic="t")
            assert list((await running.admin.ListTopicGroups(request)).groups) == ["g", "h"]
            request = client_pb2.ListTopicGroupsRequest(topic="u")
            assert list((await running.admin.ListTopicGroups(request)).groups) == ["h"]
        nobody = client_pb2.ListConsumersRequest(group="nobody")
        assert await refusal(running.admin.ListConsumers(nobody)) is grpc.StatusCode.NOT_FOUND


async def test_offsets_are_reset_by_time_and_only_back_unless_forced(tmp_path: Path) -> None:
    """E-191, E-192: back by time, forward only if forced, -1 is the end. Missing topics and groups are named."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        await running.topic("t", 2)

        async def reset(**how: Any) -> list[int]:
            request = client_pb2.ResetOffsetsRequest(group="g", topic="t", **how)
            return [one.offset for one in (await running.admin.ResetOffsets(request)).offsets]

        times = []
        for number in range(4):
            answers = await running.produce(batch_request(number, queue("t", 0), [b"x"]))
            times.append(answers[number].stored_at_ms)
            await running.cluster.clock.sleep(0.002)
        assert await refusal(reset(time_ms=times[1])) is grpc.StatusCode.NOT_FOUND
        await commit(running, "g", 3, 0)
        assert await reset(time_ms=times[1]) == [1, 0]
        assert await reset(time_ms=times[3]) == [1, 0]
        assert await reset(time_ms=-1) == [1, 0]
        assert await reset(time_ms=-1, force=True) == [4, 0]
        assert await reset(offset=4, force=True) == [4, 0]
        assert await refusal(reset(offset=5, force=True)) is grpc.StatusCode.INVALID_ARGUMENT
        one = consumer_pb2.QueueStart(queue=queue("t", 0), offset=2)
        assert await reset(offsets=client_pb2.QueueStarts(starts=[one])) == [2, 0]
        assert await stored(running, "g") == [2, 0]
        assert await refusal(reset()) is grpc.StatusCode.INVALID_ARGUMENT
        nowhere = client_pb2.ResetOffsetsRequest(group="g", topic="nowhere", offset=0)
        assert await refusal(running.admin.ResetOffsets(nowhere)) is grpc.StatusCode.NOT_FOUND


async def test_a_reset_reaches_the_member_that_consumes(tmp_path: Path) -> None:
    """E-191: a push session reads again from the new offset, at once, and its late acknowledgement does not undo it."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        await running.topic("t")
        await running.publish("t", b"a", b"b", b"c")
        async with PushClient(running, "g", "t", client_id="a", from_beginning=True) as client:
            delivery = await client.delivery()
            await client.acknowledge(delivery)
            await client.event("committed")
            request = client_pb2.ResetOffsetsRequest(group="g", topic="t", offset=1)
            assert [one.offset for one in (await running.admin.ResetOffsets(request)).offsets] == [1]
            await client.acknowledge(delivery)
            again = await client.delivery()
            assert again.next_offset == 3
            assert memoryview(again.rows).cast("i").tolist() == [1, 2]
            assert await stored(running, "g") == [1]


async def test_offsets_are_cloned(tmp_path: Path) -> None:
    """E-114: the new group starts at the offsets of the old one."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        await running.topic("t", 3)
        for queue_id in range(3):
            await running.publish("t", *[b"x"] * 3, queue=queue("t", queue_id))
        await commit(running, "g", 1, 2, 3)
        clone = client_pb2.CloneOffsetsRequest(from_group="g", to_group="h", topic="t")
        assert [one.offset for one in (await running.admin.CloneOffsets(clone)).offsets] == [1, 2, 3]
        assert await stored(running, "h") == await stored(running, "g") == [1, 2, 3]
        request = client_pb2.ListTopicGroupsRequest(topic="t")
        assert list((await running.admin.ListTopicGroups(request)).with_offsets) == ["g", "h"]
        nothing = client_pb2.CloneOffsetsRequest(from_group="nobody", to_group="h", topic="t")
        assert await refusal(running.admin.CloneOffsets(nothing)) is grpc.StatusCode.NOT_FOUND


async def test_a_client_is_described_and_called(tmp_path: Path) -> None:
    """E-193, E-195: queues as the snode sees them, the client's own report, an error for a silent client."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        await running.topic("t")
        await running.publish("t", b"a", b"b")

        async def answer_commands(client: SessionClient) -> None:
            for _ in range(2):
                command = await client.event("command")
                result = session_pb2.CommandResult(command_id=command.command_id, stack="asleep")
                if command.WhichOneof("command") == "describe_running":
                    result.running.properties["threads"] = "1"
                await client.say(command_result=result)

        async with SessionClient(running, "a") as client:
            await client.consume("g", "t", consume_type=session_pb2.CONSUME_TYPE_PUSH)
            async with PushClient(running, "g", "t", session_id=client.session_id, from_beginning=True) as pushed:
                await pushed.acknowledge(await pushed.delivery())
                await pushed.event("committed")
                answering = asyncio.get_running_loop().create_task(answer_commands(client))
                request = client_pb2.DescribeClientRequest(client_id="a", ask_client=True)
                described = await running.admin.DescribeClient(request)
                assert [(q.group, q.offset, q.next_offset, q.locked) for q in described.queues] == [("g", 2, 2, True)]
                assert described.running.properties == {"threads": "1"}
                command = session_pb2.Command(print_stack=session_pb2.PrintStack())
                called = await running.admin.CallClient(client_pb2.CallClientRequest(client_id="a", command=command))
                assert called.result.stack == "asleep"
                await answering
                command.timeout_ms = 50
                mute = running.admin.CallClient(client_pb2.CallClientRequest(client_id="a", command=command))
                assert await refusal(mute) is grpc.StatusCode.UNAVAILABLE
        nobody = client_pb2.DescribeClientRequest(client_id="nobody")
        assert await refusal(running.admin.DescribeClient(nobody)) is grpc.StatusCode.NOT_FOUND


async def test_limits_are_changed_and_followed_while_it_runs(tmp_path: Path) -> None:
    """E-243: limits come by call or by a reloaded file. Calls beyond them are refused as too many."""
    file = tmp_path / "limits.toml"
    async with open_snode_cluster(tmp_path, flow_control_file=str(file)) as running, asyncio.timeout(40):
        await running.topic("t")
        rule = flow_control_pb2.FlowRule(method="ProducerService/Publish", per_second=0.01)  # none is due soon
        await running.admin.UpdateFlowControl(flow_control_pb2.UpdateFlowControlRequest(rules=[rule]))
        await running.publish("t", b"a")
        assert await refusal(running.publish("t", b"b")) is grpc.StatusCode.RESOURCE_EXHAUSTED
        described = await running.admin.DescribeFlowControl(flow_control_pb2.DescribeFlowControlRequest())
        assert (list(described.refused), described.file) == ([1], str(file))
        file.write_text('[[rule]]\nunit = "bytes"\nper_second = 1e9\n')
        await until(running, lambda rules: [rule.unit for rule in rules] == [flow_control_pb2.FLOW_UNIT_BYTES])
        await running.publish("t", b"c")
        await running.produce(batch_request(1, queue("t"), [b"d"]))


async def until(running: Snode, reached: Callable[[list[flow_control_pb2.FlowRule]], bool]) -> None:
    """Wait until the limits have these values."""
    while True:
        described = await running.admin.DescribeFlowControl(flow_control_pb2.DescribeFlowControlRequest())
        if reached(list(described.rules)):
            return
        await running.cluster.clock.sleep(0.05)


async def test_interceptors_are_plugged_in_by_name(tmp_path: Path) -> None:
    """E-242: every call is seen before, and after or as an error.

    Batches are seen one by one; a raised error is the answer.
    """
    async with open_snode_cluster(tmp_path, interceptors=f"{__name__}:Counting") as running, asyncio.timeout(40):
        await running.topic("t")
        SEEN.clear()
        await running.publish("t", b"a")
        assert await refusal(running.publish("nowhere", b"a")) is grpc.StatusCode.NOT_FOUND
        await running.produce(batch_request(1, queue("t"), [b"d"]), batch_request(2, queue("t"), [b"e"]))
        assert SEEN[:4] == [f"{when} ProducerService/Publish" for when in ("before", "after", "before", "error")]
        assert SEEN.count("before ProducerService/Produce") == 3
        seen = len(SEEN)
        assert await refusal(running.publish("forbidden", b"a")) is grpc.StatusCode.PERMISSION_DENIED
        assert SEEN[seen:] == ["before ProducerService/Publish"], "no event after a refusal"
        while SEEN.count("after ProducerService/Produce") < 3:
            await running.cluster.clock.sleep(0.01)


async def test_thresholds_of_slow_consumers_change_at_run_time(tmp_path: Path) -> None:
    """E-086, E-083: a lower threshold evicts the push session that acknowledges nothing, and only that."""
    async with open_snode_cluster(tmp_path, sweep_interval_s=0.05) as running, asyncio.timeout(40):
        await running.topic("t")
        await running.publish("t", b"first")
        async with SessionClient(running, "a") as client:
            for group in ("g", "h"):
                await client.consume(group, "t", consume_type=session_pb2.CONSUME_TYPE_PUSH)
            async with (
                PushClient(running, "g", "t", session_id=client.session_id, from_beginning=True) as slow,
                PushClient(running, "h", "t", session_id=client.session_id, from_beginning=True) as other,
            ):
                await slow.acknowledge(await slow.delivery())
                await slow.event("committed")
                await running.publish("t", *[b"x"] * 20)
                await running.cluster.clock.sleep(0.3)
                await running.admin.UpdateGroup(
                    client_pb2.UpdateGroupRequest(
                        name="g", slow_consumer_threshold_messages=10, slow_consumer_grace_ms=100
                    )
                )
                closed = await slow.event("closed")
                assert closed.reason == consumer_pb2.CLOSE_REASON_SLOW_CONSUMER
                while (await other.delivery()).next_offset < 21:
                    pass
                consumers = (await running.admin.ListConsumers(client_pb2.ListConsumersRequest(group="g"))).consumers
                assert [(one.client_id, one.active) for one in consumers] == [("a", False)]
            async with PushClient(running, "g", "t", session_id=client.session_id) as back:
                assert (await back.delivery()).next_offset == 21


async def test_many_topics_are_described_at_once(tmp_path: Path) -> None:
    """The answer has the order of the request, as single descriptions, without topics that do not exist."""
    async with open_snode_cluster(tmp_path, enodes=2) as running, asyncio.timeout(60):
        for name, enodes in (("t", ["enode-0"]), ("u", ["enode-0", "enode-1"])):
            await running.create_topic(name, read_queue_count=2, enodes=enodes)
        await running.publish("u", b"x")
        described = await running.admin.DescribeTopics(admin_pb2.DescribeTopicsRequest(names=["u", "nowhere", "t"]))
        single = [await running.admin.DescribeTopic(admin_pb2.DescribeTopicRequest(name=name)) for name in ("u", "t")]
        assert list(described.topics) == single
        assert sum(queue.end_offset for queue in described.topics[0].queues) == 1
        assert [(queue.enode, queue.queue_id) for queue in described.topics[1].queues] == [
            ("enode-0", 0),
            ("enode-0", 1),
        ]
