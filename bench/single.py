"""One message a call: processor time a call in snode and enode, with each transport.

Sends come from h2load, a load generator in C (Debian's package nghttp2-client). Receives and acknowledgements come from
this process, because each acknowledgement needs a received handle.

`--workers 2` compares SendMessage through a snode of one process with a snode of two workers. Two busy cores slow each
other down. To show the machine's part, the same number of clusters of one process run at once and share nothing but the
machine.
"""

import argparse
import asyncio
import contextlib
import os
import re
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc

from apache.rocketmq.v2 import definition_pb2, service_pb2
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from bench.processes import cluster, descendants, running_s
from bench.report import Figures, main
from bench.traffic import make_topic
from ortoo.verification.servers.valkey import valkey

METHOD = (
    "apache.rocketmq.v2 SendMessage with one message of 256 bytes to 8 queues, durable, by h2load. At 64 in flight 4 "
    "connections of 16 calls, at 16 4 of 4, at 1 one. Two clusters loaded in turn, one with the transport grpc and "
    "one with h2. Then ReceiveMessage of up to 32 of them and AckMessage of each, by an asyncio client, 16 calls in "
    "flight. Medians over the rounds, processor microseconds a call"
)
TRANSPORTS = ("grpc", "h2")
SHAPES = {1: (1, 1), 16: (4, 4), 64: (4, 16)}
SPREAD = 16
"""The number of connections that reaches all workers."""
SEND = "apache.rocketmq.v2.MessagingService/SendMessage"
WARM_CALLS = 500
GROUP, RECEIVE_BATCH, CONSUMERS = "bench-group", 32, 16
METADATA = (("x-mq-client-id", "bench"), ("x-mq-language", "PYTHON"))


def request(topic: str) -> bytes:
    """A request of an official producer, in a gRPC frame."""
    message = definition_pb2.Message(
        topic=definition_pb2.Resource(name=topic),
        system_properties=definition_pb2.SystemProperties(
            message_id=f"01{7:032X}", tag="t", keys=["k"], born_host="producer.example"
        ),
        user_properties={"p": "v"},
        body=bytes(256),
    )
    data = service_pb2.SendMessageRequest(messages=[message]).SerializeToString()
    return b"\0" + len(data).to_bytes(4, "big") + data


async def load(address: str, frame: Path, shape: tuple[int, int], calls: int) -> float:
    """Make `calls` calls over the connections and calls in flight of `shape`; calls a second."""
    connections, streams = shape
    headers = ("content-type: application/grpc", "te: trailers", "x-mq-client-id: bench", "x-mq-language: JAVA")
    words = [word for header in headers for word in ("-H", header)]
    process = await asyncio.create_subprocess_exec(
        *("h2load", "-n", str(calls), "-c", str(connections), "-m", str(streams), "-d", str(frame)),
        *(*words, f"http://{address}/{SEND}"),
        stdout=asyncio.subprocess.PIPE,
    )
    text = (await process.communicate())[0].decode()
    done, rate = re.search(r"(\d+) succeeded", text), re.search(r"([\d.]+) req/s", text)
    assert done is not None, text
    assert rate is not None, text
    assert int(done[1]) == calls, text
    return float(rate[1])


async def received(stub: Any, messages: int) -> tuple[list[str], int]:
    """The handles of at least `messages` messages, and the number of calls that received them."""
    request = service_pb2.ReceiveMessageRequest(
        group=definition_pb2.Resource(name=GROUP),
        message_queue=definition_pb2.MessageQueue(topic=definition_pb2.Resource(name="bench")),
        batch_size=RECEIVE_BATCH,
    )
    request.invisible_duration.seconds, request.long_polling_timeout.seconds = 3600, 1
    handles: list[str] = []
    calls = 0

    async def consume() -> None:
        nonlocal calls
        while len(handles) < messages:
            calls += 1
            frames = stub.ReceiveMessage(request, metadata=METADATA, timeout=30)
            handles.extend(
                [frame.message.system_properties.receipt_handle async for frame in frames if frame.HasField("message")]
            )

    await asyncio.gather(*(consume() for _ in range(CONSUMERS)))
    return handles, calls


async def acknowledged(stub: Any, handles: list[str]) -> int:
    """Acknowledge each handle by a call; the number of calls."""
    left = iter(handles)

    async def consume() -> None:
        for handle in left:
            request = service_pb2.AckMessageRequest(
                group=definition_pb2.Resource(name=GROUP),
                topic=definition_pb2.Resource(name="bench"),
                entries=[service_pb2.AckMessageEntry(receipt_handle=handle)],
            )
            answer = await stub.AckMessage(request, metadata=METADATA)
            assert answer.status.code == definition_pb2.Code.OK, answer

    await asyncio.gather(*(consume() for _ in range(CONSUMERS)))
    return len(handles)


async def measure(options: argparse.Namespace) -> Figures:
    """Rounds of both transports, at each number of calls in flight."""
    if shutil.which("h2load") is None:
        return {"skipped": "h2load is missing; install nghttp2-client"}
    if options.workers > 1:
        return await measure_workers(options)
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        frame = folder / "frame"
        frame.write_bytes(request("bench"))
        targets: dict[str, tuple[str, dict[str, int]]] = {}
        for name in TRANSPORTS:
            roles = await stack.enter_async_context(cluster(snode_settings={"TRANSPORT": name}, TRANSPORT=name))
            await make_topic(roles.address, "bench", 8)
            targets[name] = (roles.address, {"snode": roles.snode.process_id, "enode": roles.enode.process_id})
        channels = {
            name: await stack.enter_async_context(grpc.aio.insecure_channel(address))
            for name, (address, _) in targets.items()
        }
        figures: dict[str, dict[str, dict[str, list[float]]]] = {name: {} for name in targets}
        for round_number in range(options.rounds + 1):
            for in_flight, shape in SHAPES.items():
                for name, (address, processes) in targets.items():
                    calls = WARM_CALLS if not round_number else max(300, options.calls * in_flight // 64)
                    with counted(figures[name], f"{in_flight} in flight", processes) as told:
                        told.extend((calls, await load(address, frame, shape, calls)))
            for name, (_, processes) in targets.items():
                stub = MessagingServiceStub(channels[name])
                with counted(figures[name], "receive", processes) as told:
                    handles, calls = await received(stub, WARM_CALLS if not round_number else options.calls // 2)
                    told.append(calls)
                with counted(figures[name], "acknowledge", processes) as told:
                    told.append(await acknowledged(stub, handles))
            if not round_number:
                for found in figures.values():
                    found.clear()
    load_average = os.getloadavg()[0]
    return {"load_average": load_average, "figures": {name: _medians(found) for name, found in figures.items()}}


async def measure_workers(options: argparse.Namespace) -> Figures:
    """Rounds of SendMessage through a snode of one process and one of several: 64 in flight, and 64 a worker."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        frame = folder / "frame"
        frame.write_bytes(request("bench"))
        store = await stack.enter_async_context(valkey(folder / "valkey"))
        figures: dict[str, dict[str, dict[str, list[float]]]] = {}
        targets: dict[str, tuple[list[str], dict[str, int]]] = {}
        shares = [("workers = 1", 1), (f"workers = {options.workers}", options.workers)]
        shares += [(f"{options.workers} clusters at once", 1)] * options.workers
        for place, (name, workers) in enumerate(shares):
            settings = {"WORKERS": str(workers), "REDIS_URL": store.url, "REDIS_PREFIX": f"of-{place}"}
            roles = await stack.enter_async_context(cluster(snode_settings=settings))
            await make_topic(roles.address, "bench", 8)
            snode = (roles.snode.process_id, *descendants(roles.snode.process_id))
            addresses, processes = targets.setdefault(name, ([], {}))
            addresses.append(roles.address)
            processes |= {f"snode {place}.{number}": process for number, process in enumerate(snode)}
            processes[f"enode {place}"] = roles.enode.process_id
        for round_number in range(options.rounds + 1):
            for in_flight in (64, 64 * options.workers):
                for name, (addresses, processes) in targets.items():
                    calls = (options.calls if round_number else WARM_CALLS) // len(addresses)
                    shape = (SPREAD // len(addresses), in_flight // SPREAD)
                    with counted(figures.setdefault(name, {}), f"{in_flight} in flight", processes) as told:
                        rates = await asyncio.gather(*(load(one, frame, shape, calls) for one in addresses))
                        told.extend((calls * len(addresses), sum(rates)))
            if not round_number:
                figures.clear()
    for found in (one for shapes in figures.values() for one in shapes.values()):
        roles_used = [values for role, values in found.items() if role.startswith(("snode ", "enode "))]
        found["snode and enode"] = [sum(one) for one in zip(*roles_used, strict=True)]
    return {"load_average": os.getloadavg()[0], "figures": {name: _medians(found) for name, found in figures.items()}}


@contextlib.contextmanager
def counted(figures: dict[str, dict[str, list[float]]], what: str, processes: dict[str, int]) -> Iterator[list[float]]:
    """Processor microseconds a call of the block, which appends its number of calls, and calls a second if known."""
    before = {role: running_s(process) for role, process in processes.items()}
    told: list[float] = []
    yield told
    calls, *rates = told
    found = figures.setdefault(what, {})
    for role, process in processes.items():
        found.setdefault(role, []).append((running_s(process) - before[role]) / calls * 1e6)
    if rates:
        found.setdefault("calls/s", []).append(rates[0])


def _medians(figures: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    return {
        what: {name: round(statistics.median(values)) for name, values in found.items()}
        for what, found in figures.items()
    }


if __name__ == "__main__":
    main("single", METHOD, measure, rounds=3, calls=8000, workers=1)
