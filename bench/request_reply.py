"""The latency of a request with its reply, beside that of a single send."""

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from bench.percentiles import latency_figures
from bench.processes import cluster
from bench.report import Figures, main, ratio
from bench.traffic import make_topic
from ortoo.client import Message, connect

METHOD = (
    "a closed loop sends one message at a time and awaits its receipt. In alternating rounds it sends one request at a "
    "time and awaits its reply. A pause before each call lets the acknowledgements of the previous call end. 4 queues, "
    "fdatasync before each acknowledgement. The replier is a push consumer in a process of its own. The first round is "
    "not counted"
)
BAR = 2.2


@contextlib.asynccontextmanager
async def replier(address: str, announce: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """A replier in a process of its own, which has handled the message of `announce`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.replier", address, stdout=asyncio.subprocess.PIPE
    )
    try:
        await announce()
        assert process.stdout is not None
        await process.stdout.readline()
        yield
    finally:
        process.kill()
        await process.wait()


async def measure(options: argparse.Namespace) -> Figures:
    """Alternating rounds of sends and requests."""
    message = Message(bytes(options.body_bytes))
    sends: list[float] = []
    requests: list[float] = []
    async with cluster() as roles, connect(roles.address) as mq:
        for topic in ("sends", "requests"):
            await make_topic(roles.address, topic, 4)
        async with (
            mq.producer("sends") as sending,
            mq.producer("requests") as requesting,
            replier(roles.address, lambda: requesting.send(message)),
        ):
            for round_number in range(options.rounds + 1):
                sent = await _timed(lambda: sending.send(message), options)
                requested = await _timed(lambda: requesting.request(message, timeout_s=30), options)
                if round_number:
                    sends += sent
                    requests += requested
    send, request = latency_figures(sends), latency_figures(requests)
    return {
        "body_bytes": options.body_bytes,
        "pause_ms": options.pause_ms,
        "calls": len(requests),
        "send": send,
        "request": request,
        "bar": BAR,
        "ratios": {"p50 of request and reply to p50 of a send": ratio(request["p50_ms"], send["p50_ms"])},
    }


async def _timed(call: Callable[[], Awaitable[object]], options: argparse.Namespace) -> list[float]:
    """Seconds of each call of a round, one after another."""
    durations: list[float] = []
    for _ in range(options.calls):
        await asyncio.sleep(options.pause_ms / 1000)
        began = time.perf_counter()
        await call()
        durations.append(time.perf_counter() - began)
    return durations


if __name__ == "__main__":
    main("request_reply", METHOD, measure, rounds=5, calls=200, body_bytes=256, pause_ms=10.0)
