"""The chart's example of a strict environment as real processes: its settings, Secrets, IPv6, Sentinel and PostgreSQL.

Only hosts, ports, folders and the TLS of Redis are this machine's.
"""

import asyncio
import contextlib
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ortoo.client import connect
from ortoo.common.grpc.cluster_token import ADMIN_TOKEN
from ortoo.common.grpc.server import LIVE
from ortoo.v1 import namesrv_pb2
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.postgres import postgres
from ortoo.verification.servers.processes import RoleProcess
from ortoo.verification.servers.valkey import valkey
from tests.deploy.test_chart import CASES, containers, objects, rendered
from tests.deploy.test_chart_placement import named
from tests.findings import of_cluster
from tests.integration.health import until_ready

NAME = "payments-mq"
HOST = "[::1]"
COUNTS = {"namesrv": 2, "enode": 2, "snode": 3}
PORTS = {"namesrv": 8071, "enode": 8091, "snode": 8081}
SECRETS = {"admin_token_file": "a" * 32, "cluster_token_file": "c" * 32, "secrets_key_file": "A" * 43 + "="}
OPERATOR, PASSWORD = "operator", "the secret of the operator"
ACCESS = f'[[user]]\naccess_key = "{OPERATOR}"\nadmin = true\n'


@dataclass
class Pods:
    """The pods of the example as processes."""

    folder: Path
    values: Mapping[tuple[str, str], str]
    """(Secret, key) to value, for variables."""
    addresses: dict[str, str] = field(default_factory=dict)
    """Pod to address."""
    processes: list[tuple[RoleProcess, dict[str, Any]]] = field(default_factory=list)
    """Each with its container."""

    def __post_init__(self) -> None:
        """Choose ports, and write the files of Secrets and ConfigMaps."""
        pods = [f"{NAME}-{role}-{n}" for role, count in COUNTS.items() for n in range(count)]
        self.addresses = dict(zip(pods, (f"{HOST}:{port}" for port in free_ports(len(pods))), strict=True))
        files = {f"secrets/{name}": text for name, text in SECRETS.items()} | {"access/access.toml": ACCESS}
        for name, text in files.items():
            (self.folder / "etc" / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / "etc" / name).write_text(text)

    def environ(self, pod: str, container: dict[str, Any]) -> dict[str, str]:
        """The variables of a container, as a pod has them."""
        found = {}
        for one in container["env"]:
            if "value" in one:
                found[one["name"]] = self.here(pod, one["value"])
            elif "secretKeyRef" in one["valueFrom"]:
                ref = one["valueFrom"]["secretKeyRef"]
                found[one["name"]] = self.values[ref["name"], ref["key"]]
        return found

    def here(self, pod: str, text: str) -> str:
        """A value of the chart on this machine: addresses of pods, the own port, folders."""
        own = self.addresses.get(pod, f"{HOST}:0")
        text = re.sub(rf"({NAME}-\w+-\d)\.{NAME}-\w+:\d+", lambda found: self.addresses[found[1]], text)
        text = re.sub(r"\$\(\w+\)\.[\w-]+:\d+|\[\$\(POD_IP\)\]:\d+", own, text)
        text = re.sub(rf"{NAME}:8081", self.addresses[f"{NAME}-snode-0"], text)
        text = re.sub(r"\[::\]:80\d\d", f"[::]:{own.rpartition(':')[2]}", text)
        text = text.replace("[::]:9464", "[::1]:0")
        return text.replace("/etc/ortoo", str(self.folder / "etc")).replace("/var/lib/ortoo", str(self.folder / pod))

    async def start(self, found: list[dict[str, Any]]) -> None:
        """Start name servers, then enodes and snodes."""
        for role, count in COUNTS.items():
            ((_, _, container),) = (one for one in containers(found) if one[0] == f"{NAME}-{role}")
            for pod in (f"{NAME}-{role}-{n}" for n in range(count)):
                environ, prefix = self.environ(pod, container), f"ORTOO_{role.upper()}_"
                own = {name.removeprefix(prefix): value for name, value in environ.items() if name.startswith(prefix)}
                process = RoleProcess(role, self.folder / pod, own | {"NAME": pod, "DRAIN_DELAY_S": "0"})
                process.environ_more = {name: value for name, value in environ.items() if not name.startswith(prefix)}
                self.processes.append((process, container))
                await process.start()
                if pod == f"{NAME}-namesrv-0":
                    await self.create_operator()

    async def create_operator(self) -> None:
        """Create the first admin at the name server, as the page about access control says."""
        metadata = ((ADMIN_TOKEN, SECRETS["admin_token_file"]),)
        async with grpc.aio.insecure_channel(self.addresses[f"{NAME}-namesrv-0"]) as channel:
            user = namesrv_pb2.User(access_key=OPERATOR, enabled=True)
            request = namesrv_pb2.PutUserRequest(user=user, secret_key=PASSWORD)
            await NameServiceStub(channel).PutUser(request, metadata=metadata)

    async def probe(self) -> None:
        """Every probe of every container succeeds."""
        for process, container in self.processes:
            address = self.addresses[process.folder.name]
            async with grpc.aio.insecure_channel(address) as channel:
                for kind in ("startup", "liveness", "readiness"):
                    asked = container[f"{kind}Probe"]["grpc"]
                    assert asked["port"] in PORTS.values()
                    if asked.get("service") != LIVE:
                        await until_ready(channel, asked.get("service", ""))
                        continue
                    request = health_pb2.HealthCheckRequest(service=LIVE)
                    answer = await health_pb2_grpc.HealthStub(channel).Check(request)
                    assert answer.status == health_pb2.HealthCheckResponse.SERVING

    async def declare(self, found: list[dict[str, Any]]) -> str:
        """Run the Job of the declarations; returns its output."""
        job = named(found, "Job", f"{NAME}-declarations")["spec"]["template"]["spec"]["containers"][0]
        content = named(found, "ConfigMap", f"{NAME}-declarations")["data"]["declarations.toml"]
        (file := self.folder / "etc/declarations/declarations.toml").parent.mkdir(exist_ok=True)
        file.write_text(content)
        environ = self.environ("job", job) | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        process = await asyncio.create_subprocess_exec(
            *(self.here("job", word) for word in job["command"]),
            env=environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, error = await process.communicate()
        assert process.returncode == 0, error
        return output.decode()


@contextlib.asynccontextmanager
async def bank(folder: Path, found: list[dict[str, Any]]) -> AsyncIterator[Pods]:
    """The example over a PostgreSQL and a Valkey that Sentinels watch."""
    async with (
        postgres() as database,
        valkey(folder / "master") as master,
        valkey(folder / "sentinel", sentinel=f"sentinel monitor groups 127.0.0.1 {master.port} 1\n") as sentinel,
    ):
        url = named(found, "Secret", f"{NAME}-redis")["stringData"]["url"]
        url = url.replace("rediss+", "redis+").replace("sentinel-0.cache:26379", "127.0.0.1:1")
        values = {
            (f"{NAME}-database", "url"): database.url,
            (f"{NAME}-redis", "url"): url.replace("sentinel-1.cache:26379", f"127.0.0.1:{sentinel.port}"),
            (f"{NAME}-operator", "access-key"): OPERATOR,
            (f"{NAME}-operator", "secret-key"): PASSWORD,
        }
        pods = Pods(folder, values)
        try:
            await pods.start(found)
            yield pods
        finally:
            for process, _ in reversed(pods.processes):
                await process.kill()


@pytest.mark.timeout(300)
async def test_the_example_of_a_bank_runs_as_processes(tmp_path: Path) -> None:
    """Probes succeed, the declarations are applied once, users are checked, and messages flow between all snodes."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("NOT CHECKED, this machine has no IPv6; run the test on a machine with the address ::1")
    found = objects(rendered("helm", *CASES["bank"]))
    async with bank(tmp_path, found) as pods, asyncio.timeout(240):
        await pods.probe()
        first, second = await pods.declare(found), await pods.declare(found)
        assert "payments" in first
        assert "payments" not in second
        snodes = [pods.addresses[f"{NAME}-snode-{n}"] for n in range(COUNTS["snode"])]
        async with connect(snodes[0], access_key=OPERATOR, secret_key=PASSWORD) as mq:
            cluster = await mq.admin.describe_cluster()
            assert sorted(one.address for one in cluster.enodes) == sorted(
                address for pod, address in pods.addresses.items() if "enode" in pod
            )
            assert [one.alive for one in (*cluster.enodes, *cluster.snodes)] == [True] * 5
            assert {one.permission for one in await mq.admin.list_topics()} == {"read_write"}
            async with mq.producer("payments") as producer:
                await producer.send_many([b"x"] * 20)
            assert of_cluster(await mq.admin.operations.list_findings(timeout_s=60)) == []
        async with connect(snodes[2], access_key=OPERATOR, secret_key=PASSWORD) as mq:
            stored = [one async for one in mq.admin.tail("payments", from_beginning=True, follow=False)]
            assert len(stored) == 20
