"""The start-up time of `ortoo dev` in a fresh folder, beside an empty grpc.aio server started the same way.

The time to the first acknowledged send includes creating the topic.
"""

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import grpc

from bench.report import Figures, main, ratio
from ortoo.client import Message, connect

METHOD = "seconds from starting `ortoo dev` in an empty folder to its first acknowledged send; medians"
IDLE_S = 2.0
START_GUARD_S = 30.0

EMPTY_SERVER = """
import asyncio, grpc

async def call(request, context):
    return request

async def serve():
    server = grpc.aio.server()
    handlers = {"Call": grpc.unary_unary_rpc_method_handler(call)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Empty", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"ready on 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()

asyncio.run(serve())
"""


@asynccontextmanager
async def _started(*arguments: str) -> AsyncIterator[tuple[int, str]]:
    """A Python process that has printed "ready on ADDRESS": its process id and that address."""
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_GUARD_S):
            line = (await process.stdout.readline()).decode()
        found = re.search(r"ready on (\S+?:\d+)", line)
        if found is None:
            raise RuntimeError(f"the process did not get ready; it said {line!r}")
        yield process.pid, found[1]
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _baseline() -> float:
    """Seconds until an empty grpc.aio server has answered its first call."""
    began = time.perf_counter()
    async with _started("-c", EMPTY_SERVER) as (_, address), grpc.aio.insecure_channel(address) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/bench.Empty/Call")
        await call(b"x", wait_for_ready=True)
        return time.perf_counter() - began


async def _ours() -> tuple[float, float, float]:
    """Seconds to ready, seconds to the first acknowledged send, idle resident MiB."""
    with tempfile.TemporaryDirectory(prefix="ortoo-bench-") as folder:
        flags = ("--listen-address", "127.0.0.1:0", "--data-dir", folder)
        began = time.perf_counter()
        async with _started("-c", "from ortoo.cli.app import main; main()", "dev", *flags) as (pid, address):
            ready = time.perf_counter() - began
            async with connect(address) as mq:
                await mq.admin.create_topic("first")
                async with mq.producer("first") as producer:
                    await producer.send(Message(b"hello"))
                    sent = time.perf_counter() - began
            await asyncio.sleep(IDLE_S)
            return ready, sent, _resident_mib(pid)


def _resident_mib(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


async def _measure(arguments: argparse.Namespace) -> Figures:
    await _baseline()  # the first start of all reads the modules from disk
    ours: list[tuple[float, float, float]] = []
    baselines: list[float] = []
    for _ in range(arguments.rounds):
        baselines.append(await _baseline())
        ours.append(await _ours())
    first_send = median(sent for _, sent, _ in ours)
    baseline = median(baselines)
    figures: dict[str, Any] = {
        "rounds": arguments.rounds,
        "ready_s": round(median(ready for ready, _, _ in ours), 3),
        "first_send_s": round(first_send, 3),
        "first_send_s_of_each_round": [round(sent, 3) for _, sent, _ in ours],
        "idle_memory_mib": round(median(memory for _, _, memory in ours), 1),
        "baselines": {
            "empty grpc.aio server to its first answer": {
                "first_answer_s": round(baseline, 3),
                "first_answer_s_of_each_round": [round(seconds, 3) for seconds in baselines],
            }
        },
        "ratios": {"the empty server's time to ours": ratio(baseline, first_send)},
    }
    return figures


if __name__ == "__main__":
    main("cold_start", METHOD, _measure, rounds=5)
