"""`ortoo bench`: measures how fast a topic takes messages and how fast they are read."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ortoo.cli.terminal.command import TopicName
from ortoo.cli.terminal.output import CommandOutput
from ortoo.cli.terminal.printing import print_progress
from ortoo.common.errors import OrtooError
from ortoo.common.logs.counts import counted
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock, SystemClock

if TYPE_CHECKING:
    from ortoo.client import Client, Producer, Queue

BENCH_TAG = "ortoo-bench"
PROGRESS_S = 1.0
FAILURE_PAUSE_S = 0.1
"""The pause after a failed send, because the next one probably fails too."""


class BenchResult(NamedTuple):
    """The figures of one run. Latencies are from the time at which a send was due to its acknowledgement."""

    sent: int
    failed: int
    """Sends without an acknowledgement."""
    error: str | None
    """The error of the last failed send."""
    send_s: float
    sent_per_s: float
    latency_p50_ms: float
    latency_p99_ms: float
    latency_max_ms: float
    read: int
    """The messages of the topic that were read, including messages of other producers."""
    read_s: float
    read_per_s: float


@dataclass(kw_only=True, slots=True)
class _Sending:
    """The sends of one run."""

    producer: "Producer"
    clock: Clock
    body: bytes
    seconds: float
    rate: int
    latencies_s: list[float] = field(default_factory=list)
    failed: int = 0
    error: str | None = None

    async def run(self, in_flight: int) -> float:
        """Send until the time has ended; returns the seconds until the last answer."""
        start_s, numbers = self.clock.monotonic_s(), count()
        workers = [self._send_in_turn(start_s, numbers) for _ in range(in_flight)]
        async with Background("bench") as background:
            background.spawn("progress", self._show_progress())
            await asyncio.gather(*workers)
        return self.clock.monotonic_s() - start_s

    async def _send_in_turn(self, start_s: float, numbers: "count[int]") -> None:
        """Send one message after another; at a rate, each send has its own time."""
        from ortoo.client import Message

        message = Message(self.body, BENCH_TAG)
        while (now_s := self.clock.monotonic_s()) < start_s + self.seconds:
            due_s = start_s + next(numbers) / self.rate if self.rate else now_s
            if due_s >= start_s + self.seconds:
                return
            if due_s > now_s:
                await self.clock.sleep(due_s - now_s)
            try:
                await self.producer.send(message)
            except OrtooError as error:
                self.failed, self.error = self.failed + 1, str(error)
                await self.clock.sleep(FAILURE_PAUSE_S)
            else:
                self.latencies_s.append(self.clock.monotonic_s() - due_s)

    async def _show_progress(self) -> None:
        while True:
            await self.clock.sleep(PROGRESS_S)
            print_progress(f"{len(self.latencies_s)} messages sent")


async def bench(
    mq: "Client",
    topic: TopicName,
    seconds: Annotated[float, typer.Option(min=0.1, max=3600, help="How long messages are sent.")] = 10.0,
    rate: Annotated[int, typer.Option(min=0, help="Messages per second; 0 = as fast as possible.")] = 0,
    size: Annotated[int, typer.Option(min=1, max=1 << 20, help="Bytes of each message's body.")] = 1024,
    in_flight: Annotated[int, typer.Option(min=1, max=10_000, help="Sends that wait for an answer at once.")] = 200,
    read: Annotated[bool, typer.Option(help="Read the messages again afterwards, outside any group.")] = True,
) -> CommandOutput:
    """Measure a topic: messages per second, latency of sends, and speed of reads. Groups receive the messages too."""
    clock = SystemClock()
    ends = {one.queue: one.end_offset for one in (await mq.admin.describe_topic(topic)).queues}
    async with mq.producer(topic) as producer:
        sending = _Sending(producer=producer, clock=clock, body=b"x" * size, seconds=seconds, rate=rate)
        send_s = await sending.run(in_flight)
    start_s = clock.monotonic_s()
    counts = await asyncio.gather(*(_read(mq, *one) for one in ends.items())) if read else []
    read_s = clock.monotonic_s() - start_s
    latencies_s = sorted(sending.latencies_s)
    found = BenchResult(
        sent=len(latencies_s),
        failed=sending.failed,
        error=sending.error,
        send_s=round(send_s, 2),
        sent_per_s=round(len(latencies_s) / send_s, 1),
        latency_p50_ms=_percentile_ms(latencies_s, 0.5),
        latency_p99_ms=_percentile_ms(latencies_s, 0.99),
        latency_max_ms=_percentile_ms(latencies_s, 1.0),
        read=sum(counts),
        read_s=round(read_s, 2),
        read_per_s=round(sum(counts) / read_s, 1) if counts else 0.0,
    )
    return CommandOutput(found, _lines(found, size))


def _lines(found: BenchResult, size: int) -> list[str]:
    megabytes_per_s = found.sent_per_s * size / 1_000_000
    lines = [
        f"sent {counted(found.sent, 'message')} of {size} bytes in {found.send_s} s: "
        f"{found.sent_per_s:.0f} messages/s, {megabytes_per_s:.1f} MB/s",
        f"latency of a send: p50 {found.latency_p50_ms} ms, p99 {found.latency_p99_ms} ms, "
        f"max {found.latency_max_ms} ms",
    ]
    lines += [f"{counted(found.failed, 'send')} failed, the last one with: {found.error}"] if found.failed else []
    if found.read:
        lines.append(f"read {counted(found.read, 'message')} in {found.read_s} s: {found.read_per_s:.0f} messages/s")
    return lines


async def _read(mq: "Client", queue: "Queue", from_offset: int) -> int:
    """The number of messages of a queue from an offset to its end now."""
    return sum([len(batch) async for batch in mq.fetch(queue, from_offset)])


def _percentile_ms(ordered_s: Sequence[float], share: float) -> float:
    """The latency that `share` of the sends did not exceed; 0 without sends."""
    return round(ordered_s[max(0, round(share * len(ordered_s)) - 1)] * 1000, 1) if ordered_s else 0.0
