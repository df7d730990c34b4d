"""A leader that was replaced, and does not know it yet, answers nothing from its outdated state."""

import asyncio
import contextlib

import grpc
import pytest

from ortoo.client import OrtooError, ProducerSettings
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.enode.app import RunningEnode
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from ortoo.v1 import enode_locks_pb2 as locks_pb
from ortoo.v1 import enode_pb2 as pb
from ortoo.v1 import enode_pop_pb2 as pop_pb
from ortoo.v1.enode_pb2_grpc import EnodeServiceStub
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import leader, sent, topic

THREE = ClusterShape(enodes=1, snodes=1, replicas=3)
ANSWER_DELAY_S = 0.6
"""Below the time after which a leader without answers steps down."""
TAKE_OVER_S = 8.0


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_leader_with_late_answers_of_followers_gives_no_stale_answer(seed: int) -> None:
    """Answers of followers arrive late; then the leader is cut off from them, not from its clients.

    No answer of the former leader lacks a message that was acknowledged before the request.
    """

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client, Channels() as channels:
            await topic(stage, client)
            stored: list[bytes] = []
            await sent(client, 5, stored)
            first, network = await leader(stage), stage.world.network
            others = [one for one in stage.cluster.replicas if one is not first]
            assert isinstance(first.running, RunningEnode)
            services = first.running.process.services
            assert services is not None
            topic_id = next(one.topic_id for one in services.store.topics() if one.name == "t")
            former = EnodeServiceStub(channels.channel_to(first.address))
            request = pb.DescribeQueuesRequest(topic_id=topic_id)
            acknowledged, stale, answered = len(stored), [], 0

            async def ask() -> None:
                nonlocal answered
                expected = acknowledged
                with contextlib.suppress(grpc.RpcError):
                    answer = await former.DescribeQueues(request, timeout=3.0)
                    answered += 1
                    if answer.queues[0].end_offset < expected:
                        stale.append((expected, answer.queues[0].end_offset))

            async def load() -> None:
                nonlocal acknowledged
                async with client.producer("t", ProducerSettings(linger_ms=1)) as producer:
                    while True:
                        with contextlib.suppress(OrtooError):
                            await producer.send(b"m")
                            acknowledged += 1

            for one in others:
                network.delay(one.name, first.name, ANSWER_DELAY_S)
            await stage.clock.sleep(2)
            async with Background("load") as background:
                loading = background.spawn("send", load())

                async def ask_for(seconds: float) -> None:
                    begun_s = stage.clock.monotonic_s()
                    while stage.clock.monotonic_s() - begun_s < seconds:
                        background.spawn("ask", ask())
                        await stage.clock.sleep(0.01)

                await ask_for(1.0)
                cuts = [network.partition(first.name, one.name, both_ways=False) for one in others]
                await ask_for(ANSWER_DELAY_S)  # answers that were sent before the cut still arrive
                cuts += [network.partition(one.name, first.name, both_ways=False) for one in others]
                await ask_for(TAKE_OVER_S)
                assert any(one.is_leading for one in others)
                for heal in cuts:
                    heal()
                loading.cancel()
                await asyncio.wait([loading])
            assert answered
            assert acknowledged > len(stored)
            assert stale == []
            network.heal()

    play(script, seed=seed, shape=THREE)


@pytest.mark.parametrize("read", ["locks", "deliveries", "peek"])
def test_no_answer_shows_a_change_that_is_not_committed(read: str) -> None:
    """A leader is cut off from its followers: it decides a change in memory, and its lease still allows reads.

    The change cannot be committed, so no answer shows it.
    """

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client, Channels() as channels:
            await topic(stage, client)
            await sent(client, 1, [])
            first, network = await leader(stage), stage.world.network
            assert isinstance(first.running, RunningEnode)
            topic_id = next(one.topic_id for one in first.running.services.store.topics() if one.name == "t")
            stub = EnodeServiceStub(channels.channel_to(first.address))
            popped = await stub.PopQueues(
                pop_pb.PopQueuesRequest(
                    topic_id=topic_id, group="pops", queue_ids=[0], messages_max=1, invisible_ms=60_000
                )
            )
            part = pop_pb.LeasePart(
                lease_number=popped.batches[0].lease_number, ranges=[pop_pb.OffsetRange(first_offset=0, count=1)]
            )
            wanted = locks_pb.LockRequest(group="locks", topic_id=topic_id, queue_id=0, owner="one", session_id="1")
            for one in stage.cluster.replicas:
                if one is not first:
                    network.partition(first.name, one.name, both_ways=True)
            settle = pop_pb.SettlePoppedRequest(topic_id=topic_id, group="pops", parts=[part], finish=pop_pb.Finish())
            asked = pop_pb.DescribeDeliveriesRequest(
                topic_id=topic_id, group="pops", queue_id=0, from_offset=0, limit=1
            )
            peek = pop_pb.PopQueuesRequest(topic_id=topic_id, group="pops", queue_ids=[0], messages_max=1, peek=True)

            async def change() -> None:
                with pytest.raises(grpc.RpcError):
                    if read == "locks":
                        await stub.TakeLocks(locks_pb.TakeLocksRequest(requests=[wanted]), timeout=9)
                    else:
                        await stub.SettlePopped(settle, timeout=9)

            async with Background("changes") as background:
                background.spawn("change", change())
                await stage.clock.sleep(0.02)
                with pytest.raises(grpc.RpcError):
                    if read == "locks":
                        await stub.QueryLocks(locks_pb.QueryLocksRequest(topic_id=topic_id, group="locks"), timeout=9)
                    elif read == "deliveries":
                        await stub.DescribeDeliveries(asked, timeout=9)
                    else:
                        await stub.PopQueues(peek, timeout=9)
            network.heal()

    play(script, shape=THREE)
