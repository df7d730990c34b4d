"""The cost of idle RocketMQ consumers: long polls without messages, heartbeats, and queries of assignments."""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from bench.processes import memory_mib, running_s
from bench.report import Figures, main
from ortoo.cli.demo.role_subprocess import RoleSubprocess
from ortoo.client import connect

METHOD = (
    "name server, enodes and a snode, each a process, and one topic with 4 queues on each enode. Idle consumers of "
    "RocketMQ's protocol, spread over groups and connections, poll for `poll_s` at a time. Measured after a warm-up: "
    "processor time of the snode and of all enodes together for the polls alone. Then each consumer also sends a "
    "heartbeat every 10 s and queries its assignment every 5 s. Then single messages are sent. Measured for them: time "
    "from the send to the receipt, and processor time"
)
TOPIC = d.Resource(name="idle")
HEARTBEAT_S, ASSIGNMENT_S = 10.0, 5.0
QUEUES = 4


@asynccontextmanager
async def roles(enodes: int) -> AsyncIterator[tuple[RoleSubprocess, list[RoleSubprocess]]]:
    """A snode and its enodes."""
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
        yield await start("snode", "snode", **common), stores


class Consumers:
    """Idle consumers."""

    def __init__(self, address: str, consumers: int, groups: int, connections: int, poll_s: float) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channels = [grpc.aio.insecure_channel(address, options) for _ in range(connections)]
        self.stubs = [MessagingServiceStub(channel) for channel in self.channels]
        self.consumers = consumers
        self.groups = groups
        self.poll_s = poll_s
        self.polls = self.received = 0
        self.delays_ms: list[float] = []
        self.sent_s = 0.0
        self.has_received = asyncio.Event()

    def _caller(self, number: int) -> tuple[MessagingServiceStub, d.Resource, tuple[tuple[str, str]]]:
        group = d.Resource(name=f"group-{number % self.groups}")
        return self.stubs[number % len(self.stubs)], group, (("x-mq-client-id", f"client-{number}"),)

    async def poll(self, number: int) -> None:
        """Poll until cancelled, first after a part of the interval, as clients that started at different times."""
        stub, group, metadata = self._caller(number)
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
            frames = [one async for one in stub.ReceiveMessage(request, metadata=metadata, timeout=60)]
            for message in [one.message for one in frames if one.HasField("message")]:
                self.delays_ms.append(1000 * (time.perf_counter() - self.sent_s))
                self.received += 1
                self.has_received.set()
                entry = s.AckMessageEntry(receipt_handle=message.system_properties.receipt_handle)
                await stub.AckMessage(s.AckMessageRequest(group=group, topic=TOPIC, entries=[entry]), metadata=metadata)
            self.polls += 1
            wait_s = self.poll_s

    async def keep_alive(self, number: int) -> None:
        """Send heartbeats and queries until cancelled."""
        stub, group, metadata = self._caller(number)
        heartbeat = s.HeartbeatRequest(group=group, client_type=d.PUSH_CONSUMER)
        query = s.QueryAssignmentRequest(topic=TOPIC, group=group)
        await asyncio.sleep(HEARTBEAT_S * number / self.consumers)
        while True:
            await stub.Heartbeat(heartbeat, metadata=metadata)
            for _ in range(int(HEARTBEAT_S / ASSIGNMENT_S)):
                await stub.QueryAssignment(query, metadata=metadata)
                await asyncio.sleep(ASSIGNMENT_S)


async def measure_idle(options: argparse.Namespace, enodes: int) -> Figures:
    """The cost with this number of enodes."""
    async with AsyncExitStack() as stack:
        snode, stores = await stack.enter_async_context(roles(enodes))
        processes = [snode.process_id, *[one.process_id for one in stores]]
        mq = await stack.enter_async_context(connect(snode.address))
        await mq.admin.create_topic("idle", queue_count=QUEUES)
        assert len({one.queue.enode for one in (await mq.admin.describe_topic("idle")).queues}) == enodes
        groups = options.groups or options.consumers
        crowd = Consumers(snode.address, options.consumers, groups, options.connections, options.poll_s)
        for channel in crowd.channels:
            stack.push_async_callback(channel.close)
        tasks = [asyncio.create_task(crowd.poll(number)) for number in range(crowd.consumers)]
        stack.callback(lambda: [task.cancel() for task in tasks])
        await asyncio.sleep(options.warm_up_s)
        figures: Figures = {"snode_mib": memory_mib(snode.process_id)}

        async def watch(name: str) -> None:
            before_s, began_s, polls = list(map(running_s, processes)), time.perf_counter(), crowd.polls
            await asyncio.sleep(options.seconds)
            for task in tasks:
                if task.done():
                    task.result()
            elapsed_s, polls = time.perf_counter() - began_s, crowd.polls - polls
            used_s = [running_s(one) - before for one, before in zip(processes, before_s, strict=True)]
            figures[name] = {
                "polls_per_s": round(polls / elapsed_s, 1),
                "snode_percent": round(100 * used_s[0] / elapsed_s, 1),
                "enodes_percent": round(100 * sum(used_s[1:]) / elapsed_s, 1),
                "snode_ms_per_poll": round(1000 * used_s[0] / polls, 2),
                "enodes_ms_per_poll": round(1000 * sum(used_s[1:]) / polls, 2),
            }

        await watch("polls")
        tasks += [asyncio.create_task(crowd.keep_alive(number)) for number in range(crowd.consumers)]
        await asyncio.sleep(HEARTBEAT_S)
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
    """Measure with each number of enodes."""
    return {f"enodes_{count}": await measure_idle(options, int(count)) for count in options.enodes.split(",")}


if __name__ == "__main__":
    main(
        "idle_polls",
        METHOD,
        measure,
        consumers=3_000,
        groups=1,
        connections=300,
        poll_s=20.0,
        enodes="1,8",
        seconds=30.0,
        warm_up_s=85.0,
        messages=200,
    )
