"""The Compose files are valid, and their processes with their settings make a cluster that works."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ortoo.client import connect
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.processes import SMALL_STORE, RoleProcess
from tests.deploy.test_chart import run, tool
from tests.repo.tree import ROOT

pytestmark = pytest.mark.timeout(600)
FILES = ("single.yaml", "replicas.yaml")
ADDRESS = re.compile(r"([\w.-]+):(80\d\d|9464)\b")


@cache
def read(file: str) -> dict[str, Any]:
    """A Compose file as `docker compose` reads it; without that command, as the library reads it that it uses."""
    path = str(ROOT / "deploy/compose" / file)
    try:
        has_compose = run("docker", "compose", "version").returncode == 0
    except FileNotFoundError:
        has_compose = False
    words = ("docker", "compose", "-f", path, "config", "--format") if has_compose else (tool("compose"), "-format")
    done = run(*words, "json", *(() if has_compose else (path,)))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Composed:
    """The processes of a Compose file on this machine, each with ports of its own."""

    def __init__(self, services: dict[str, dict[str, Any]], folder: Path) -> None:
        """Settings are those of the file, except for hosts, ports and folders."""
        places = [(name, port) for name in services for port in ("8071", "8081", "8091", "8092", "9464")]
        self.addresses = {
            place: f"127.0.0.1:{port}" for place, port in zip(places, free_ports(len(places)), strict=True)
        }
        self.roles = {name: self._role(name, service, folder / name) for name, service in services.items()}

    def local(self, name: str, text: str) -> str:
        """A text of service `name` with the addresses of this machine."""

        def address(match: re.Match[str]) -> str:
            host = name if match[1] in ("0.0.0.0", "127.0.0.1") else match[1]
            return self.addresses[host, match[2]]

        return ADDRESS.sub(address, text)

    async def is_healthy(self, name: str, service: dict[str, Any]) -> bool:
        """Whether the health check of a service succeeds."""
        kind, python, *arguments = service["healthcheck"]["test"]
        assert (kind, python) == ("CMD", "python")
        words = [self.local(name, word) for word in arguments]
        check = await asyncio.create_subprocess_exec(sys.executable, *words, stderr=asyncio.subprocess.DEVNULL)
        return await check.wait() == 0

    def _role(self, name: str, service: dict[str, Any], folder: Path) -> RoleProcess:
        (command,) = service["command"]
        prefix = f"ORTOO_{command.removeprefix('ortoo-').upper()}_"
        environ: dict[str, object] = {}
        for variable, text in service["environment"].items():
            assert variable.startswith(prefix), (name, variable)
            environ[variable.removeprefix(prefix)] = self.local(name, text)
        if "DATA_DIR" in environ:
            assert [one["target"] for one in service["volumes"]] == [environ["DATA_DIR"]]
            environ["DATA_DIR"] = folder / "data"
        more = SMALL_STORE if command == "ortoo-enode" else {}
        return RoleProcess(command.removeprefix("ortoo-"), folder, {**environ, **more})


@asynccontextmanager
async def composed(file: str, folder: Path) -> AsyncIterator[Composed]:
    """Run the services of a Compose file as processes. When they are healthy, an enode is alive soon."""
    services = read(file)["services"]
    cluster = Composed(services, folder)
    try:
        async with asyncio.timeout(280):
            await asyncio.gather(*(role.start() for role in cluster.roles.values()))
            for name, service in services.items():
                while not await cluster.is_healthy(name, service):
                    await SystemClock().sleep(0.2)
            async with connect(cluster.addresses["snode", "8081"]) as mq:
                while not any(enode.alive for enode in (await mq.admin.describe_cluster()).enodes):
                    await SystemClock().sleep(0.2)  # three replicas elect their first leader
        yield cluster
    finally:
        for role in cluster.roles.values():
            await role.kill()


@pytest.mark.parametrize("file", FILES)
async def test_services_make_a_cluster(file: str, tmp_path: Path) -> None:
    """When each service is healthy, messages flow. Each one ends gracefully within its grace period."""
    services = read(file)["services"]
    async with composed(file, tmp_path) as cluster:
        async with connect(cluster.addresses["snode", "8081"]) as mq, asyncio.timeout(120):
            await mq.admin.create_topic("t")
            async with mq.producer("t") as producer:
                assert (await producer.send(b"x")).offset == 0
        assert {service["stop_grace_period"] for service in services.values()} == {"30s"}
        stops = await asyncio.gather(*(role.stop() for role in reversed(cluster.roles.values())))
        assert set(stops) == {0}


async def test_the_loss_of_a_replica_stops_no_messages(tmp_path: Path) -> None:
    """A killed leader is replaced, acknowledged messages are there, and the lost replica joins again."""
    async with composed("replicas.yaml", tmp_path) as cluster, connect(cluster.addresses["snode", "8081"]) as mq:
        await mq.admin.create_topic("t", queue_count=1)
        async with mq.producer("t") as producer:
            await producer.send(b"before")
            (replica_set,) = await mq.admin.replicas.list("enode-0")
            leader = cluster.roles[f"enode-{replica_set.leader}"]
            await leader.kill()
            await producer.send(b"after")
        stored = [one.message.body async for one in mq.admin.tail("t", from_beginning=True, follow=False)]
        assert stored == [b"before", b"after"]
        await leader.start()
        async with asyncio.timeout(120):
            while True:
                (replica_set,) = await mq.admin.replicas.list("enode-0")
                if all(one.lag_bytes == 0 for one in replica_set.replicas):
                    return
                await SystemClock().sleep(0.1)


@pytest.mark.parametrize("file", FILES)
def test_only_clients_of_the_machine_reach_the_cluster(file: str) -> None:
    """No port but that of the snode is published, on the loopback address, and containers have no privileges."""
    services = read(file)["services"]
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert {name: [port["host_ip"] for port in ports] for name, ports in published.items()} == {"snode": ["127.0.0.1"]}
    for service in services.values():
        assert (service["read_only"], service["cap_drop"], service["image"]) == (True, ["ALL"], "ortoo")
        assert "privileged" not in service


def test_a_wrong_file_is_refused(tmp_path: Path) -> None:
    """The check of the files can fail: an unknown key is refused."""
    text = (ROOT / "deploy/compose/single.yaml").read_text().replace("read_only:", "readonly:")
    (tmp_path / "wrong.yaml").write_text(text)
    read.cache_clear()
    with pytest.raises(AssertionError, match="readonly"):
        read(str(tmp_path / "wrong.yaml"))


def test_the_page_shows_the_commands_of_the_files() -> None:
    """The documentation and the first lines of each file have the same commands."""
    page = (ROOT / "docs/operations/compose.md").read_text()
    for file in FILES:
        commands = re.findall(r"^#   (.+)$", (ROOT / "deploy/compose" / file).read_text(), re.M)
        assert len(commands) == 2
        for command in commands:
            assert command in page
