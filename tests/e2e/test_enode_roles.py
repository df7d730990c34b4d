"""Masters and replicas as processes: numbers, ports, memory, and a log that outlives its enode."""

import asyncio
import shutil
import socket
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ortoo.client import ProducerSettings, connect
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.service import EXIT_REFUSED
from ortoo.testing.servers import grpcurl
from ortoo.testing.servers.processes import SMALL_STORE, DidNotStart, ProcessCluster, RoleProcess, process_cluster
from tests.e2e.test_process_front import outcome
from tests.e2e.test_roles import everything


def two_ports() -> int:
    """The first of two ports one after the other that nobody has now."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port = int(first.getsockname()[1])
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except (OSError, OverflowError):
                continue
        return port


def replica_of(cluster: ProcessCluster, replica_id: int = 1) -> RoleProcess:
    """A replica of the cluster's enode, not started."""
    environ = {"NAME": "enode-0", "ROLE": "SLAVE", "REPLICA_ID": replica_id, "HEARTBEAT_INTERVAL_S": 0.2}
    environ["NAMESRV_ADDRESS"] = cluster.namesrv.address
    return RoleProcess("enode", cluster.folder / f"replica-{replica_id}", environ)


@pytest.fixture
async def synced(tmp_path: Path) -> AsyncIterator[ProcessCluster]:
    """A cluster whose enode answers when a replica has the message."""
    enode = {**SMALL_STORE, "ROLE": "SYNC_MASTER", "REPLICA_ID": 5, "HEARTBEAT_INTERVAL_S": 0.2}
    async with process_cluster(tmp_path, environ={"enode": enode}) as cluster:
        yield cluster


async def enode_in(cluster: ProcessCluster) -> dict[str, object]:
    """The enode as cluster info lists it."""
    answer = await grpcurl.call(cluster.address, "ortoo.v1.AdminService/DescribeCluster", {})
    enodes: list[dict[str, object]] = answer.values()[0]["enodes"]
    assert len(enodes) == 1
    return enodes[0]


async def until_followed(cluster: ProcessCluster, count: int) -> dict[str, object]:
    """Wait until cluster info lists so many replicas."""
    async with asyncio.timeout(30):
        while len((found := await enode_in(cluster)).get("replicas", ())) != count:  # type: ignore[arg-type]
            await SystemClock().sleep(0.05)
    return found


async def test_a_replica_needs_a_number_and_a_master_has_none(synced: ProcessCluster) -> None:
    """SLAVE 0 ends with 253, SLAVE 1 starts; SYNC_MASTER 5 is listed under number 0 (E-007, E-008)."""
    nameless = replica_of(synced, 0)
    with pytest.raises(DidNotStart) as caught:
        await nameless.start()
    assert caught.value.exit_code == EXIT_REFUSED
    assert "replica_id: 0; a SLAVE needs a number of its own, 1 or more" in caught.value.log
    replica = replica_of(synced)
    try:
        await replica.start()
        found = await until_followed(synced, 1)
        assert (found["role"], found.get("replica_id", 0)) == ("SYNC_MASTER", 0)
        assert found["replicas"] == [{"replica_id": 1, "address": replica.address}]
        assert await replica.stop() == 0
    finally:
        await replica.kill()


async def test_replicas_connect_at_the_port_after_the_enodes_own(tmp_path: Path) -> None:
    """By default somebody listens on port + 1; a port that is set is the one instead (E-009)."""
    for number, chosen in enumerate((None, two_ports())):
        port = two_ports()
        enode = RoleProcess("enode", tmp_path / str(number), {**SMALL_STORE, "NAMESRV_ADDRESS": "127.0.0.1:1"})
        enode.address = f"127.0.0.1:{port}"
        if chosen is not None:
            enode.environ["REPLICATION_ADDRESS"] = f"127.0.0.1:{chosen}"
        try:
            await enode.start()
            listed = await grpcurl.grpcurl("-plaintext", f"127.0.0.1:{chosen or port + 1}", "list")
            assert "ortoo.v1.ReplicationService" in listed.out
            if chosen is not None:
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port + 1)).close()
        finally:
            await enode.kill()


async def test_a_replica_takes_less_memory() -> None:
    """`-p` shows a share of 30 % for a SLAVE, 40 % for a master, and what was set as it was set (E-012)."""
    slave = {"ORTOO_ENODE_ROLE": "SLAVE", "ORTOO_ENODE_REPLICA_ID": "1"}
    texts = [
        await outcome("enode", "-p", environ=environ)
        for environ in ({}, slave, {**slave, "ORTOO_ENODE_MEMORY_SHARE_PERCENT": "40"})
    ]
    assert [code for code, _, _ in texts] == [0, 0, 0]
    assert [tomllib.loads(text)["memory_share_percent"] for _, text, _ in texts] == [40, 30, 40]
    assert "memory_share_percent = 30  # role" in texts[1][1]


async def test_what_a_sync_master_acknowledged_outlives_its_disk(synced: ProcessCluster) -> None:
    """E-221: without a replica nothing is taken; with one, what was acknowledged is there without the enode's disk."""
    replica = replica_of(synced)
    async with connect(synced.address) as mq:
        settings = ProducerSettings(linger_ms=1)
        try:
            store = await grpcurl.call(synced.enode.address, "ortoo.v1.EnodeService/DescribeStore")
            assert "no replica follows this SYNC_MASTER" in store.out
            await until_health(synced.enode.address, "NOT_SERVING")
            await replica.start()
            await until_followed(synced, 1)
            await until_health(synced.enode.address, "SERVING")
            await until_health(replica.address, "SERVING")
            await mq.admin.create_topic("t")
            async with mq.producer("t", settings) as producer:
                sent = [b"%06d" % number for number in range(20_000)]
                for at in range(0, len(sent), 500):
                    await asyncio.gather(*await producer.send_many(sent[at : at + 500]))
                replica.freeze()
                waiting = asyncio.ensure_future(producer.send(b"waits"))  # noqa: TID251  # it goes on beside us
                await SystemClock().sleep(0.3)
                assert not waiting.done()
                replica.thaw()
                await waiting
            assert len(list(replica.data.glob("*.seg"))) >= 1
            await synced.enode.kill()
            shutil.rmtree(synced.enode.data)
            await replica.kill()
            # The replica's folder becomes the enode.
            synced.enode.environ |= {"DATA_DIR": replica.data, "ROLE": "ASYNC_MASTER"}
            await synced.enode.start()
            await synced.until_alive()
            assert await everything(synced.address, len(sent) + 1) == {*sent, b"waits"}
        finally:
            await replica.kill()


async def until_health(address: str, status: str) -> None:
    """Wait until the health service says so."""
    async with asyncio.timeout(30):
        while f'"{status}"' not in (await grpcurl.call(address, "grpc.health.v1.Health/Check")).out:
            await SystemClock().sleep(0.05)
