"""Several name servers over one PostgreSQL: any may die, all may be replaced, the database may be down."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ortoo.client import Producer, connect
from ortoo.common.errors import Unavailable
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.postgres import Postgres, postgres
from ortoo.verification.servers.processes import SMALL_STORE, ProcessCluster, RoleProcess
from tests.own_time import own_time

SEND_MAX_S = 5.0
"""Sends do not wait for a name server, but a busy machine delays them; its stalls are not counted."""
AWAY_S = float(os.environ.get("ORTOO_DATABASE_AWAY_S", "4"))
"""How long PostgreSQL is stopped."""


@dataclass
class Shared:
    """A cluster with two name servers over one database."""

    database: Postgres
    cluster: ProcessCluster
    namesrvs: list[RoleProcess]

    def list_file(self) -> Path:
        """The settings file with the list of name servers that enode and snode read."""
        return self.cluster.folder / "list.toml"

    def write_list(self) -> None:
        """Write the current name servers into the file."""
        addresses = ";".join(one.address for one in self.namesrvs)
        self.list_file().write_text(f'namesrv_address = "{addresses}"\n')

    def new_namesrv(self, number: int) -> RoleProcess:
        """Another name server over the same database, on a port of its own."""
        return RoleProcess(
            "namesrv",
            self.cluster.folder / f"namesrv-{number}",
            {"DATABASE_URL": self.database.url, "NAME": f"namesrv-{number}"},
        )


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Shared]:
    """PostgreSQL, two name servers, an enode and a snode."""
    async with postgres() as database, contextlib.AsyncExitStack() as parts:
        enode = RoleProcess("enode", tmp_path / "enode-0", {"NAME": "enode-0", **SMALL_STORE})
        snode = RoleProcess("snode", tmp_path / "snode-0", {"NAME": "snode-0"})
        made = Shared(database, ProcessCluster(tmp_path, RoleProcess("namesrv", tmp_path), [enode], [snode]), [])
        for number in range(2):
            namesrv = made.new_namesrv(number)
            parts.push_async_callback(namesrv.kill)
            await namesrv.start()
            made.namesrvs.append(namesrv)
        made.write_list()
        for role in (enode, snode):
            role.arguments = ("-c", str(made.list_file()))
            parts.push_async_callback(role.kill)
            await role.start()
        made.cluster.namesrv.address = made.namesrvs[1].address
        await made.cluster.wait_until_alive()
        yield made


@dataclass
class Load:
    """Sends messages until stopped, and records the outcomes."""

    sent: int = 0
    failed: list[str] = field(default_factory=list)
    slowest_s: float = 0.0

    async def run(self, producer: Producer) -> None:
        """Send one message after another."""
        while True:
            async with own_time() as taken:
                try:
                    await producer.send(b"x")
                    self.sent += 1
                except Exception as error:
                    self.failed.append(repr(error))
            self.slowest_s = max(self.slowest_s, taken.seconds)
            await SystemClock().sleep(0.01)

    async def goes_on(self) -> None:
        """Wait until another 50 messages are sent."""
        wanted = self.sent + 50
        async with asyncio.timeout(60):
            while self.sent < wanted:
                await SystemClock().sleep(0.01)
        assert self.failed == []


async def test_messages_flow_while_name_servers_and_database_come_and_go(shared: Shared) -> None:
    """Either name server is killed, the database is stopped, all name servers move: no send fails (E-026, E-003)."""
    async with connect(shared.cluster.address) as mq, Background("load") as background:
        await mq.admin.create_topic("t")
        async with mq.producer("t") as producer:
            load = Load()
            sending = background.spawn("send", load.run(producer))
            for number, namesrv in enumerate(shared.namesrvs):
                await namesrv.kill()
                await load.goes_on()
                async with asyncio.timeout(60):  # the other one accepts changes
                    await mq.admin.create_topic(f"while-{number}-is-away")
                await namesrv.start()
                shared.cluster.namesrv.address = namesrv.address
                await shared.cluster.wait_until_alive()  # it has all registrations again
            await shared.database.stop()
            with pytest.raises(Unavailable, match="database failed") as refused:
                await mq.admin.create_topic("refused")
            assert "check that a snode is running" not in str(refused.value)  # the snode has answered
            assert "\n" not in str(refused.value)
            await SystemClock().sleep(AWAY_S)
            await load.goes_on()
            await shared.database.start()
            async with asyncio.timeout(60):
                await until_created(mq.admin.create_topic, "healed")
            # Other machines, other addresses: the list is changed, then the old ones are stopped.
            old = list(shared.namesrvs)
            shared.namesrvs[:] = [shared.new_namesrv(2)]
            await shared.namesrvs[0].start()
            shared.write_list()
            for role in (shared.cluster.enode, shared.cluster.snode):
                os.kill(role.pid, signal.SIGHUP)
                await role.wait_for_log("settings_reloaded")
            for namesrv in old:
                await namesrv.stop()
            shared.cluster.namesrv.address = shared.namesrvs[0].address
            await shared.cluster.wait_until_alive()
            await load.goes_on()
            async with asyncio.timeout(60):
                await until_created(mq.admin.create_topic, "moved")
            await shared.namesrvs[0].stop()
            sending.cancel()  # before its producer ends
        assert load.failed == []
        assert load.slowest_s < SEND_MAX_S


async def until_created(create: object, name: str) -> None:
    """Create a topic as soon as that is possible."""
    while True:
        try:
            await create(name)  # type: ignore[operator]
        except Unavailable:
            await SystemClock().sleep(0.1)
        else:
            return
