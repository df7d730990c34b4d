"""An enode with three members as processes: one is killed, another serves, and nothing acknowledged is lost."""

import asyncio
import contextlib
import os
import socket
import statistics
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ortoo.client import Client, OrtooError, ProducerSettings, connect
from ortoo.common.process.clock import SystemClock
from ortoo.testing.servers import grpcurl
from ortoo.testing.servers.processes import SMALL_STORE, ProcessCluster, RoleProcess
from tests.e2e.test_roles import everything

MEMBERS = 3
ROUNDS = int(os.environ.get("ORTOO_TAKE_OVERS", "3"))


@pytest.fixture
async def members(tmp_path: Path) -> AsyncIterator[ProcessCluster]:
    """A name server, an enode with three members, a snode."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(MEMBERS)]
        addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    namesrv = RoleProcess("namesrv", tmp_path / "namesrv", {"DATABASE_URL": f"sqlite:///{tmp_path}/names.db"})
    async with contextlib.AsyncExitStack() as parts:
        parts.push_async_callback(namesrv.kill)
        await namesrv.start()
        enodes = []
        for number, address in enumerate(addresses, 1):
            environ = {
                **SMALL_STORE,
                "NAME": "enode-0",
                "MEMBER": number,
                "MEMBERS": MEMBERS,
                "MEMBER_LISTEN_ADDRESS": address,
                "MEMBER_ADDRESSES": ";".join(addresses),
                "NAMESRV_ADDRESS": namesrv.address,
            }
            enodes.append(RoleProcess("enode", tmp_path / f"member-{number}", environ))
            parts.push_async_callback(enodes[-1].kill)
            await enodes[-1].start()
        snode = RoleProcess("snode", tmp_path / "snode", {"NAME": "snode-0", "NAMESRV_ADDRESS": namesrv.address})
        parts.push_async_callback(snode.kill)
        await snode.start()
        yield ProcessCluster(tmp_path, namesrv, enodes, [snode])


async def leading(cluster: ProcessCluster) -> RoleProcess:
    """The member that leads, as soon as one says so."""
    while True:
        for one in cluster.enodes:
            with contextlib.suppress(Exception):
                answer = await grpcurl.call(
                    one.address, "ortoo.v1.EnodeMembersService/DescribeMembers", {"enode": "enode-0"}
                )
                if answer.values()[0].get("is_leading"):
                    return one
        await SystemClock().sleep(0.05)


async def first_stored_s(client: Client, body: bytes) -> float:
    """How long it takes until a message is acknowledged, in seconds."""
    begun_s = SystemClock().monotonic_s()
    async with client.producer("t", ProducerSettings(linger_ms=1)) as producer:
        while True:
            with contextlib.suppress(OrtooError):
                await producer.send(body)
                return SystemClock().monotonic_s() - begun_s


async def test_a_member_takes_over(members: ProcessCluster) -> None:
    """After each kill -9 of the leader another one acknowledges within 3 s, and everything is still there (B-045)."""
    stored: list[bytes] = []
    took_s: list[float] = []
    async with asyncio.timeout(120), connect(members.address) as mq:
        first = await leading(members)
        while True:
            with contextlib.suppress(OrtooError):
                await mq.admin.ensure_topic("t", queue_count=1)
                break
            await SystemClock().sleep(0.1)
        for number in range(ROUNDS):
            body = b"before %d" % number
            await first_stored_s(mq, body)
            stored.append(body)
            first = await leading(members)
            await first.kill()
            body = b"after %d" % number
            took_s.append(await first_stored_s(mq, body))
            stored.append(body)
            await first.start()
    found = await everything(members.address, len(stored))
    assert sorted(set(stored) - found) == []
    assert statistics.median(took_s) < 3.0, took_s
