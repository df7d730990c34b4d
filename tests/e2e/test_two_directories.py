"""Name servers over two databases are named by the doctor, and sends fail with the reason instead of waiting."""

import asyncio
import json
from pathlib import Path

import pytest

from ortoo.client import OrtooError, connect
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import namesrv_pb2
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from ortoo.verification.servers import command
from ortoo.verification.servers.processes import RoleProcess, process_cluster
from tests.findings import OF_THE_MACHINE

LEASE = {"LEASE_S": 5.0}
QUICK = {"namesrv": LEASE, "enode": {"HEARTBEAT_INTERVAL_S": 0.2}}


async def directory_of(address: str) -> str:
    """The id of the directory of a name server."""
    async with Channels() as channels:
        stub = NameServiceStub(channels.channel_to(address))
        async for update in stub.WatchRoutes(namesrv_pb2.WatchRoutesRequest()):
            return update.directory_id
    raise AssertionError("the name server sent no routes")


async def test_two_databases_are_named_and_a_send_fails_with_the_reason(tmp_path: Path) -> None:
    """The enode follows a name server of which only the enode knows; its lease at the snode's name server is valid."""
    async with process_cluster(tmp_path, environ=QUICK) as cluster:
        other = RoleProcess("namesrv", tmp_path / "other", LEASE)
        try:
            await other.start()
            await cluster.enode.kill()
            cluster.enode.environ["NAMESRV_ADDRESS"] = f"{other.address};{cluster.namesrv.address}"
            await cluster.enode.start()
            await cluster.wait_until_alive()
            async with connect(cluster.address) as mq, asyncio.timeout(120):
                await mq.admin.create_topic("orders")
                while "directories differ" not in (found := await findings(cluster.address)):
                    await SystemClock().sleep(0.1)
                assert found["directories differ"]["critical"]
                observed = str(found["directories differ"]["observed"])
                for address in (cluster.namesrv.address, other.address):
                    assert f"{await directory_of(address)}: name server {address}" in observed

                async with mq.producer("orders") as producer:
                    with pytest.raises(OrtooError, match="different databases"):
                        await producer.send(b"x")

                assert "remove the others from namesrv_address" in str(found["directories differ"]["remedy"])
                await cluster.enode.kill()
                cluster.enode.environ["NAMESRV_ADDRESS"] = cluster.namesrv.address
                await cluster.enode.start()
                while (await findings(cluster.address)).keys() - OF_THE_MACHINE:
                    await SystemClock().sleep(0.1)
                async with mq.producer("orders") as producer:
                    await producer.send(b"x")
        finally:
            await other.kill()


async def findings(address: str) -> dict[str, dict[str, object]]:
    """The findings of the doctor, by name."""
    outcome = await command.run(("ortoo", "doctor", "--json", "--patience", "10"), address)
    return {one["name"]: one for one in map(json.loads, outcome.stdout.splitlines())}
