"""Behind a port mapping clients use the address that they know; no other address is sent to them."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from apache.rocketmq.v2 import service_pb2
from apache.rocketmq.v2.definition_pb2 import Resource
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.snode.rocketmq.clients.routes import endpoints_of
from ortoo.verification.servers.cluster import open_cluster
from tests.official.client import LANGUAGES, official

OUTSIDE_PORT = 30_081


@dataclass(frozen=True)
class Mapping:
    """A separate host, from which one port leads to a server here."""

    namespace: str
    address: str
    """The address of the server from there."""


async def run(*words: str) -> None:
    """Run a command that must succeed."""
    process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    assert process.returncode == 0, f"{' '.join(words)}: {said.decode()}"


@contextlib.asynccontextmanager
async def mapped(to: str) -> AsyncIterator[Mapping]:
    """A network namespace from which another port on another address leads to `to`, by DNAT."""
    if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("iptables")):
        pytest.skip("NO NETWORK NAMESPACES, the port mapping was NOT tested; run as root with iproute2 and iptables")
    number = os.getpid() % 250
    name, outside, inside = f"ortoo-{os.getpid()}", f"10.213.{number}.1", f"10.213.{number}.2"
    here, there = f"oh{os.getpid()}", f"ot{os.getpid()}"
    rule = ["PREROUTING", "-i", here, "-p", "tcp", "--dport", str(OUTSIDE_PORT), "-j", "DNAT", "--to-destination", to]
    async with contextlib.AsyncExitStack() as parts:
        await run("ip", "netns", "add", name)
        parts.push_async_callback(run, "ip", "netns", "del", name)
        await run("ip", "link", "add", here, "type", "veth", "peer", "name", there)
        await run("ip", "link", "set", there, "netns", name)
        await run("ip", "addr", "add", f"{outside}/24", "dev", here)
        await run("ip", "link", "set", here, "up")
        Path(f"/proc/sys/net/ipv4/conf/{here}/route_localnet").write_text("1")
        inside_it = ("ip", "netns", "exec", name, "ip")
        await run(*inside_it, "addr", "add", f"{inside}/24", "dev", there)
        await run(*inside_it, "link", "set", there, "up")
        await run(*inside_it, "link", "set", "lo", "up")
        await run("iptables", "-t", "nat", "-A", *rule)
        parts.push_async_callback(run, "iptables", "-t", "nat", "-D", *rule)
        yield Mapping(name, f"{outside}:{OUTSIDE_PORT}")


@pytest.mark.parametrize("language", LANGUAGES)
async def test_clients_behind_a_port_mapping_send_and_receive(language: str, tmp_path: Path) -> None:
    """From a host that reaches the server only by a translated address and port, everything works."""
    async with open_cluster(tmp_path) as cluster:
        await cluster.create_topic("t")
        async with (
            mapped(cluster.address) as mapping,
            official(language, mapping.address, namespace=mapping.namespace) as client,
        ):
            await client("producer", name="p", topics=["t"])
            await client("push", name="c", group="g", subscriptions={"t": {"expression": "*"}})
            sent = await client("send", name="p", topic="t", body=b"x")
            assert [m["message_id"] for m in await client.messages("c", 1)] == [sent["message_id"]]


async def test_no_answer_tells_an_address_of_the_inside(tmp_path: Path) -> None:
    """Routes and assignments contain the address that the client used, and no other."""
    async with open_cluster(tmp_path) as cluster, grpc.aio.insecure_channel(cluster.address) as channel:
        await cluster.create_topic("t")
        stub, asked = MessagingServiceStub(channel), endpoints_of("mq.example.org:30081")
        metadata = (("x-mq-client-id", "c"),)
        topic = Resource(name="t")
        route = await stub.QueryRoute(service_pb2.QueryRouteRequest(topic=topic, endpoints=asked), metadata=metadata)
        request = service_pb2.QueryAssignmentRequest(topic=topic, group=Resource(name="g"), endpoints=asked)
        assignment = await stub.QueryAssignment(request, metadata=metadata)
        queues = [*route.message_queues, *(one.message_queue for one in assignment.assignments)]
        assert queues
        assert all(queue.broker.endpoints == asked for queue in queues)
        for answer in (str(route), str(assignment)):
            assert "127.0.0.1" not in answer
