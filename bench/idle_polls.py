"""The cost of idle RocketMQ consumers: long polls without messages, heartbeats, and queries of assignments."""

import argparse
import asyncio
import statistics
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from bench.light_client import LightConnection
from bench.processes import memory_mib, running_s
from bench.report import Figures, main
from ortoo.cli.demo.role_subprocess import RoleSubprocess
from ortoo.client import connect

METHOD = (
    "name server, enodes and a snode, each a process, and one topic with 4 queues on each enode. Idle consumers of "
    "RocketMQ's protocol, spread over groups and connections, poll for `poll_s` at a time. Measured after a warm-up: "
    "processor time of the snode and of all enodes together for the polls alone. Then each consumer also sends "
    "the calls and headers of the official Java client. It sends a heartbeat every 10 s, queries of its assignment "
    "every 5 s, and queries of its route every 30 s. It has an idle telemetry stream. Then single messages are sent. "
    "Measured for them: time from the send to the receipt, and processor time"
)
TOPIC = d.Resource(name="idle")
HEARTBEAT_S, ASSIGNMENT_S, ROUTE_S = 10.0, 5.0, 30.0
REQUEST_TIMEOUT_S = 60.0
"""The timeout of a request; that of a poll is longer by the time that the poll waits."""
QUEUES = 4
SERVICE = s.DESCRIPTOR.services_by_name["MessagingService"].full_name
RESPONSES: dict[str, Any] = {
    "Heartbeat": s.HeartbeatResponse,
    "QueryAssignment": s.QueryAssignmentResponse,
    "QueryRoute": s.QueryRouteResponse,
}


@asynccontextmanager
async def roles(enodes: int, transport: str) -> AsyncIterator[tuple[RoleSubprocess, list[RoleSubprocess]]]:
    """A snode of this transport, and its enodes."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ortoo-bench-")))

        async def start(role: str, name: str, **environ: str) -> RoleSubprocess:
            process = RoleSubprocess(role, environ, folder / f"{name}.log")
            stack.push_async_callback(process.stop)
            await process.start()
            return process

        namesrv = await start("namesrv", "namesrv", DATA_DIR=str(folder / "namesrv"))
        common = {"NAMESRV_ADDRESS": namesrv.address}
        stores = [
            await start("enode", f"enode-{at}", NAME=f"enode-{at}", DATA_DIR=str(folder / f"enode-{at}"), **common)
            for at in range(enodes)
        ]
        yield await start("snode", "snode", TRANSPORT=transport, **common), stores


class Consumers:
    """Idle consumers."""

    def __init__(self, connections: list[LightConnection], consumers: int, groups: int, poll_s: float) -> None:
        self.connections = connections
        self.consumers = consumers
        self.groups = groups
        self.poll_s = poll_s
        self.polls = self.received = self.calls = 0
        self.settings: list[bytes] = []
        """The answers to the settings of the consumers."""
        self.delays_ms: list[float] = []
        self.sent_s = 0.0
        self.has_received = asyncio.Event()

    def group(self, number: int) -> d.Resource:
        """The group of a consumer."""
        return d.Resource(name=f"group-{number % self.groups}")

    def call(
        self,
        number: int,
        method: str,
        request: Message,
        timeout_s: float = REQUEST_TIMEOUT_S,
        open_answers: list[bytes] | None = None,
    ) -> "asyncio.Future[list[bytes]]":
        """Call a method with the headers that the official Java client sends."""
        metadata = (
            *((("grpc-timeout", f"{timeout_s * 1000:.0f}m"),) if timeout_s else ()),
            ("x-mq-language", "JAVA"),
            ("x-mq-protocol", "v2"),
            ("x-mq-client-version", "5.0.7"),
            ("x-mq-date-time", time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())),
            ("x-mq-request-id", str(uuid.uuid4())),
            ("x-mq-client-id", f"host@4711@{number}@idle"),
        )
        connection = self.connections[number % len(self.connections)]
        return connection.call(f"/{SERVICE}/{method}", request.SerializeToString(), metadata, open_answers)

    async def converse(self, number: int) -> None:
        """Send the settings of a push consumer, and wait for commands until cancelled."""
        settings = d.Settings(client_type=d.PUSH_CONSUMER, request_timeout=Duration(seconds=3))
        settings.subscription.group.CopyFrom(self.group(number))
        settings.subscription.subscriptions.add(topic=TOPIC).expression.expression = "*"
        command = s.TelemetryCommand(settings=settings)
        await asyncio.sleep(HEARTBEAT_S * number / self.consumers)
        await self.call(number, "Telemetry", command, timeout_s=0, open_answers=self.settings)

    async def poll(self, number: int) -> None:
        """Poll until cancelled, first after a part of the interval, as clients that started at different times."""
        group = self.group(number)
        wait_s = self.poll_s * (number + 1) / self.consumers
        attempt = 0
        while True:
            attempt += 1
            request = s.ReceiveMessageRequest(
                group=group,
                message_queue=d.MessageQueue(topic=TOPIC, id=-1),
                batch_size=32,
                auto_renew=True,
                long_polling_timeout=Duration(nanos=int(wait_s * 1e9) % 10**9, seconds=int(wait_s)),
                attempt_id=f"{number}-{attempt}",
            )
            frames = await self.call(number, "ReceiveMessage", request, wait_s + REQUEST_TIMEOUT_S)
            answers = map(s.ReceiveMessageResponse.FromString, frames)
            for message in [one.message for one in answers if one.HasField("message")]:
                self.delays_ms.append(1000 * (time.perf_counter() - self.sent_s))
                self.received += 1
                self.has_received.set()
                entry = s.AckMessageEntry(receipt_handle=message.system_properties.receipt_handle)
                await self.call(number, "AckMessage", s.AckMessageRequest(group=group, topic=TOPIC, entries=[entry]))
            self.polls += 1
            wait_s = self.poll_s

    async def repeat(self, number: int, method: str, request: Message, interval_s: float) -> None:
        """Call a method at intervals until cancelled."""
        await asyncio.sleep(interval_s * number / self.consumers)
        while True:
            [answer] = await self.call(number, method, request)
            assert RESPONSES[method].FromString(answer).status.code == d.OK, answer
            self.calls += 1
            await asyncio.sleep(interval_s)

    def periodic(self, number: int) -> list[Coroutine[Any, Any, None]]:
        """The stream and the repeated calls of a consumer."""
        group = self.group(number)
        heartbeat = s.HeartbeatRequest(group=group, client_type=d.PUSH_CONSUMER)
        return [
            self.converse(number),
            self.repeat(number, "Heartbeat", heartbeat, HEARTBEAT_S),
            self.repeat(number, "QueryAssignment", s.QueryAssignmentRequest(topic=TOPIC, group=group), ASSIGNMENT_S),
            self.repeat(number, "QueryRoute", s.QueryRouteRequest(topic=TOPIC), ROUTE_S),
        ]


async def measure_idle(options: argparse.Namespace, enodes: int, transport: str) -> Figures:
    """The cost with this number of enodes and this transport of the snode."""
    async with AsyncExitStack() as stack:
        snode, stores = await stack.enter_async_context(roles(enodes, transport))
        processes = [snode.process_id, *[one.process_id for one in stores]]
        mq = await stack.enter_async_context(connect(snode.address))
        await mq.admin.create_topic("idle", queue_count=QUEUES)
        assert len({one.queue.enode for one in (await mq.admin.describe_topic("idle")).queues}) == enodes
        groups = options.groups or options.consumers
        connections = [await LightConnection.connect(snode.address) for _ in range(options.connections)]
        for connection in connections:
            stack.callback(connection.close)
        crowd = Consumers(connections, options.consumers, groups, options.poll_s)
        tasks = [asyncio.create_task(crowd.poll(number)) for number in range(crowd.consumers)]
        stack.callback(lambda: [task.cancel() for task in tasks])
        await asyncio.sleep(options.warm_up_s)
        figures: Figures = {"snode_mib": memory_mib(snode.process_id)}

        async def watch(name: str) -> None:
            before_s, began_s = list(map(running_s, processes)), time.perf_counter()
            polls, calls = crowd.polls, crowd.calls
            await asyncio.sleep(options.seconds)
            for task in tasks:
                if task.done():
                    task.result()
            elapsed_s, polls, calls = time.perf_counter() - began_s, crowd.polls - polls, crowd.calls - calls
            used_s = [running_s(one) - before for one, before in zip(processes, before_s, strict=True)]
            figures[name] = {
                "polls_per_s": round(polls / elapsed_s, 1),
                "calls_per_s": round(calls / elapsed_s, 1),
                "snode_percent": round(100 * used_s[0] / elapsed_s, 1),
                "enodes_percent": round(100 * sum(used_s[1:]) / elapsed_s, 1),
                "snode_ms_per_poll": round(1000 * used_s[0] / polls, 2),
                "enodes_ms_per_poll": round(1000 * sum(used_s[1:]) / polls, 2),
            }

        await watch("polls")
        tasks += [asyncio.create_task(one) for number in range(crowd.consumers) for one in crowd.periodic(number)]
        await asyncio.sleep(ROUTE_S + HEARTBEAT_S)
        assert len(crowd.settings) >= crowd.consumers, f"{len(crowd.settings)} settings were answered"
        await watch("polls_and_heartbeats")
        before_s = list(map(running_s, processes))
        async with mq.producer("idle") as producer:
            for number in range(options.messages):
                crowd.sent_s, received = time.perf_counter(), crowd.received
                await producer.send(b"x")
                while crowd.received == received:
                    crowd.has_received.clear()
                    await crowd.has_received.wait()
                await asyncio.sleep(0.02 + number % 10 / 1000)
        used_ms = [1000 * (running_s(one) - before) for one, before in zip(processes, before_s, strict=True)]
        figures["messages"] = {
            "sent": options.messages,
            "received": crowd.received,
            "median_ms": round(statistics.median(crowd.delays_ms), 2),
            "snode_ms": round(used_ms[0] / options.messages, 2),
            "enodes_ms": round(sum(used_ms[1:]) / options.messages, 2),
        }
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return figures


async def measure(options: argparse.Namespace) -> Figures:
    """Measure with each number of enodes, and each transport."""
    return {
        f"{transport}_enodes_{count}": await measure_idle(options, int(count), transport)
        for transport in options.transports.split(",")
        for count in options.enodes.split(",")
    }


if __name__ == "__main__":
    main(
        "idle_polls",
        METHOD,
        measure,
        consumers=3_000,
        groups=1,
        connections=3_000,
        poll_s=20.0,
        transports="h2,grpc",
        enodes="1,8",
        seconds=30.0,
        warm_up_s=85.0,
        messages=200,
    )
