"""Lite topics after the restoration of the name servers' database."""

import asyncio

import pytest

from apache.rocketmq.v2.definition_pb2 import Code
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.common.grpc.channels import Channels
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from tests.integration.lite_client import COMPLETE, LiteClient
from tests.simulation.scripted_cluster import ScriptedCluster, play

STORED = "%LMQ%|t|l"


@pytest.mark.parametrize(("name_servers", "restarted"), [(1, True), (2, True), (2, False)])
def test_a_deletion_that_the_database_lost_does_not_stop_senders(name_servers: int, restarted: bool) -> None:
    """The snodes have seen the deletion of a version that the restored database does not have."""

    async def script(stage: ScriptedCluster) -> None:
        database = stage.world.database
        async with stage.connect("operator") as mq, Channels() as channels:
            stubs = [MessagingServiceStub(channels.channel_to(address)) for address in stage.cluster.addresses]
            clients = [LiteClient(stub, f"c{number}") for number, stub in enumerate(stubs)]
            await mq.admin.create_topic("t", message_type="lite")
            for client in clients:
                assert await client.sync(COMPLETE, "l") == Code.OK
            assert (await clients[0].send(("l", b"before"))).status.code == Code.OK
            backup = database.backup()
            await mq.admin.delete_topic(STORED)
            await stage.clock.sleep(5.0)
            database.restore(backup)
            for machine in stage.cluster.name_servers if restarted else ():
                machine.kill()
                machine.start()
            await stage.clock.sleep(20.0)
            for number, client in enumerate(clients):
                async with asyncio.timeout(10.0):
                    assert (await client.send(("l", b"after-%d" % number))).status.code == Code.OK
            received = set[bytes]()
            async with asyncio.timeout(60.0):
                while len(received) < 3:
                    for message in await clients[0].receive(wait_s=5.0):
                        received.add(message.body)
                        await clients[0].ack(message)
            assert received == {b"before", b"after-0", b"after-1"}

    play(script, shape=ClusterShape(name_servers=name_servers, enodes=1, snodes=2))
