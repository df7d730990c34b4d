"""An acknowledgement repeated while the first one is being written."""

import grpc

from ortoo.client import PopSettings
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from ortoo.v1 import pop_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import sent

SLOW = 100_000.0
"""A disk slowed down by this factor writes nothing during a test."""


def test_an_acknowledgement_that_is_repeated_is_no_sooner_durable() -> None:
    """G8: the repeated one waits for the first one's write. Unacknowledged messages come again after a power cut.

    Seed 20150 with three replicas: the first had no answer from a slow disk, and the second was answered at once.
    """

    async def script(stage: ScriptedCluster) -> None:
        [enode] = stage.cluster.enodes
        acknowledged: list[object] = []

        async def acknowledge(request: pop_pb2.AckRequest, by: str) -> None:
            async with Channels() as channels:
                stub = ConsumerServiceStub(channels.channel_to(by))
                try:
                    acknowledged.append(await stub.Ack(request, timeout=20.0))
                except grpc.aio.AioRpcError:
                    return

        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            await sent(client, 1, [])
            settings = PopSettings(invisible_ms=600_000, wait_ms=1_000)
            async with client.pop_consumer("g", "t", settings=settings) as consumer:
                [message] = await consumer.pop()
                lease = message._lease
                receipt = pop_pb2.LeaseReceipt(receipt_handle=lease.receipt_handle, offsets=[message.offset])
                request = pop_pb2.AckRequest(receipts=[receipt])
                enode.disk.latency.factor = SLOW
                async with Background("acknowledge") as background:
                    for snode in stage.cluster.addresses:
                        background.spawn("acknowledge", acknowledge(request, snode))
                        await stage.clock.sleep(0.5)
                    assert acknowledged == []
                    enode.cut_power()
                    enode.disk.latency.factor = 1.0
                    enode.start()
                    while not acknowledged:
                        background.spawn("acknowledge", acknowledge(request, stage.cluster.addresses[0]))
                        await stage.clock.sleep(1.0)

    play(script, shape=ClusterShape(enodes=1, snodes=2))
