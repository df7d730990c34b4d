"""One message a call, under a load generator in C: processor time a call in snode and enode, with the front or not.

h2load is of Debian's package nghttp2-client. Beside it runs a raw echo: the queue front with nothing behind it.
"""

import argparse
import asyncio
import contextlib
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from apache.rocketmq.v2 import definition_pb2, service_pb2
from bench.processes import Cluster, cluster, running_s
from bench.report import Figures, main
from bench.traffic import make_topic

METHOD = (
    "apache.rocketmq.v2 SendMessage with one message of 256 bytes to 8 queues, durable, by h2load: at 64 in flight 4 "
    "connections of 16 calls, at 16 4 of 4, at 1 one; two clusters loaded in turn, one whose snode has no queue front, "
    "and an echo of the same bytes by the queue front alone; medians over the rounds, processor microseconds a call"
)
SHAPES = {1: (1, 1), 16: (4, 4), 64: (4, 16)}
SEND = "apache.rocketmq.v2.MessagingService/SendMessage"
ECHO = "bench.Echo/Call"
WARM_CALLS = 500


def request(topic: str) -> bytes:
    """What an official producer sends, in gRPC's frame."""
    message = definition_pb2.Message(
        topic=definition_pb2.Resource(name=topic),
        system_properties=definition_pb2.SystemProperties(message_id=f"01{7:032X}", tag="t", keys=["k"]),
        user_properties={"p": "v"},
        body=bytes(256),
    )
    data = service_pb2.SendMessageRequest(messages=[message]).SerializeToString()
    return b"\0" + len(data).to_bytes(4, "big") + data


async def load(address: str, method: str, frame: Path, in_flight: int, calls: int) -> float:
    """Make so many calls; calls a second."""
    connections, streams = SHAPES[in_flight]
    headers = ("content-type: application/grpc", "te: trailers", "x-mq-client-id: bench", "x-mq-language: JAVA")
    words = [word for header in headers for word in ("-H", header)]
    process = await asyncio.create_subprocess_exec(
        *("h2load", "-n", str(calls), "-c", str(connections), "-m", str(streams), "-d", str(frame)),
        *(*words, f"http://{address}/{method}"),
        stdout=asyncio.subprocess.PIPE,
    )
    text = (await process.communicate())[0].decode()
    done, rate = re.search(r"(\d+) succeeded", text), re.search(r"([\d.]+) req/s", text)
    assert done is not None, text
    assert rate is not None, text
    assert int(done[1]) == calls, text
    return float(rate[1])


@contextlib.asynccontextmanager
async def echo() -> AsyncIterator[tuple[str, int]]:
    """The address of an echo, and its process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.baselines.front_echo", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield (await process.stdout.readline()).decode().strip(), process.pid
    finally:
        process.kill()
        await process.wait()


async def measure(options: argparse.Namespace) -> Figures:
    """Rounds of all three, at each number in flight."""
    if shutil.which("h2load") is None:
        return {"skipped": "h2load is missing; install nghttp2-client"}
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        frame = folder / "frame"
        frame.write_bytes(request("bench"))
        address, process_id = await stack.enter_async_context(echo())
        targets: dict[str, tuple[str, str, dict[str, int]]] = {"echo": (address, ECHO, {"echo": process_id})}
        clusters: dict[str, Cluster] = {}
        for name, module in (("before", "bench.unfronted"), ("front", "")):
            roles = clusters[name] = await stack.enter_async_context(cluster(snode_module=module))
            await make_topic(roles.address, "bench", 8)
            processes = {"snode": roles.snode.process_id, "enode": roles.enode.process_id}
            targets[name] = (roles.address, SEND, processes)
        figures: dict[str, dict[int, dict[str, list[float]]]] = {
            name: {in_flight: {} for in_flight in SHAPES} for name in targets
        }
        for round_number in range(options.rounds + 1):
            for in_flight in SHAPES:
                for name, (address, method, processes) in targets.items():
                    calls = WARM_CALLS if not round_number else max(300, options.calls * in_flight // 64)
                    before = {role: running_s(process) for role, process in processes.items()}
                    rate = await load(address, method, frame, in_flight, calls)
                    if not round_number:
                        continue
                    found = figures[name][in_flight]
                    found.setdefault("calls/s", []).append(rate)
                    for role, process in processes.items():
                        used_us = (running_s(process) - before[role]) / calls * 1e6
                        found.setdefault(role, []).append(used_us)
    return {"figures": {name: _medians(by_number) for name, by_number in figures.items()}}


def _medians(figures: dict[int, dict[str, list[float]]]) -> dict[str, Any]:
    return {
        f"{in_flight} in flight": {name: round(statistics.median(values)) for name, values in found.items()}
        for in_flight, found in figures.items()
    }


if __name__ == "__main__":
    main("single", METHOD, measure, rounds=3, calls=8000)
