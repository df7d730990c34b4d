"""Fill the disk of one enode of two while messages flow, and report the effect on sends.

    python -m tests.e2e.full_enode --rate 600 --fills 3

Two enodes, one snode, real processes; `enode-1` has a small tmpfs for a disk. A third of the messages is sent by our
producer, a third by single `Publish` calls, a third by RocketMQ's `SendMessage`, which are never retried. Each fill
takes all space of the disk. It waits until the directory reports that the enode refuses messages, and until more
messages than any queue holds have been sent. Then it frees the space and waits until the enode accepts messages again.
The exit code is 1 when a send failed or waited for more than a second, and 77 when no disk can be mounted here.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from apache.rocketmq.v2 import definition_pb2 as words
from apache.rocketmq.v2 import service_pb2 as calls
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Client, ProducerSettings, connect
from ortoo.common.grpc.channels import Channels
from ortoo.common.logs import logger as logs
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import producer_pb2, record_pb2
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.verification.servers.processes import ProcessCluster, process_cluster
from ortoo.verification.store.full_disk import SKIPPED, MountNotAllowed, small_disk
from tests.e2e.drill import run_drill
from tests.e2e.machine import Machine

TOPIC, FULL = "filling", "enode-1"
BODY = b"m" * 4_000
DISK_BYTES = 48 << 20
WAIT_MAX_S = 1.0
MESSAGES_WHILE_FULL = 2_000
PATIENCE_S = 120.0
LOOK_S = 0.05
CLOCK = SystemClock()
Send = Callable[[], Awaitable[object]]


@dataclass
class Cost:
    """The outcome of the sends."""

    sent: int = 0
    failed: list[str] = field(default_factory=list)
    slowest_s: dict[str, float] = field(default_factory=dict)
    """By kind of send: the longest time from the planned send to its acknowledgement."""
    noticed_s: list[float] = field(default_factory=list)
    """For each fill: from the last free byte until the directory reports it.

    Sends continue meanwhile and use what is left of the segment.
    """
    resumed_s: list[float] = field(default_factory=list)
    """For each fill: from freed space until the directory reports no trouble."""
    machine: Machine = field(default_factory=Machine)

    def faults(self) -> list[str]:
        """The broken guarantees."""
        late = ((way, took_s) for way, took_s in self.slowest_s.items() if took_s > WAIT_MAX_S)
        return [*self.failed[:5], *(f"{way}: a send took {took_s:.2f} s" for way, took_s in late)]

    def summary(self) -> str:
        """One line."""
        slowest = ", ".join(f"{way} {took_s * 1000:.0f} ms" for way, took_s in sorted(self.slowest_s.items()))
        times = (
            f"{name} {', '.join(f'{one:.1f}' for one in found)} s"
            for name, found in (("noticed after", self.noticed_s), ("taken back after", self.resumed_s))
        )
        return (
            f"{self.sent} sent, {len(self.failed)} failed, slowest {slowest}; full {len(self.noticed_s)} times, "
            f"{', '.join(times)}; {self.machine}"
        )


async def filled(folder: Path, *, rate: int, fills: int, say: Callable[[str], object]) -> Cost:
    """Run it in `folder`. Errors: MountNotAllowed."""
    cost = Cost()
    with small_disk(folder / FULL / "data", DISK_BYTES):
        async with process_cluster(folder, enodes=2) as cluster, connect(cluster.address) as mq:
            await mq.admin.create_topic(TOPIC, queue_count=2)
            async with (
                Channels() as channels,
                mq.producer(TOPIC, ProducerSettings(linger_ms=1)) as producer,
                Background("load") as background,
            ):
                ways = _ways(mq, MessagingServiceStub(channels.channel_to(cluster.address)))
                ways["producer"] = lambda: producer.send(BODY)
                sending = background.spawn("sender", _keep_sending(ways, cost, rate, background))
                for _ in range(fills):
                    await _fill(cluster, mq, cost)
                    say(cost.summary())
                sending.cancel()
    return cost


async def _fill(cluster: ProcessCluster, mq: Client, cost: Cost) -> None:
    ballast = cluster.enodes[1].data / "ballast"
    begun_s = CLOCK.monotonic_s()
    await asyncio.to_thread(_take_all_room, ballast)
    await _until(mq, refuses=True)
    cost.noticed_s.append(CLOCK.monotonic_s() - begun_s)
    before = cost.sent
    while cost.sent < before + MESSAGES_WHILE_FULL:
        await CLOCK.sleep(LOOK_S)
    begun_s = CLOCK.monotonic_s()
    ballast.unlink()
    await _until(mq, refuses=False)
    cost.resumed_s.append(CLOCK.monotonic_s() - begun_s)


def _take_all_room(ballast: Path) -> None:
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))


async def _until(mq: Client, *, refuses: bool) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            known = (await mq.admin.describe_cluster()).enodes
            if any(one.name == FULL and bool(one.write_refusal) is refuses for one in known):
                return
            await CLOCK.sleep(LOOK_S)


def _ways(mq: Client, rocketmq: MessagingServiceStub) -> dict[str, Send]:
    """The kinds of sends of single messages: one call each, without retries."""

    async def publish() -> None:
        request = producer_pb2.PublishRequest(topic=TOPIC, messages=[record_pb2.Message(body=BODY)])
        await mq._connection.call(ProducerServiceStub, "Publish", request)

    async def send_message() -> None:
        system = words.SystemProperties(message_id=f"{CLOCK.monotonic_s()}", message_type=words.NORMAL)
        message = words.Message(topic=words.Resource(name=TOPIC), system_properties=system, body=BODY)
        headers = (("x-mq-client-id", "filler"), ("x-mq-language", "JAVA"))
        answer = await rocketmq.SendMessage(calls.SendMessageRequest(messages=[message]), metadata=headers)
        if answer.status.code != words.OK:
            raise AssertionError(f"{answer.status.code}: {answer.status.message}")

    return {"Publish": publish, "SendMessage": send_message}


async def _keep_sending(ways: dict[str, Send], cost: Cost, rate: int, background: Background) -> None:
    """Send one message after another at its planned time, each watched on its own."""
    due_s, number = CLOCK.monotonic_s(), 0
    while True:
        way = sorted(ways)[number % len(ways)]
        background.spawn("send", _watch(way, ways[way], cost, due_s))
        number, due_s = number + 1, due_s + 1 / rate
        await CLOCK.sleep(max(0.0, due_s - CLOCK.monotonic_s()))
        cost.machine.look(CLOCK.monotonic_s(), due_s)


async def _watch(way: str, send: Send, cost: Cost, planned_s: float) -> None:
    try:
        await send()
    except Exception as error:
        cost.failed.append(f"{way} failed: {error!r}")
    cost.sent += 1
    cost.slowest_s[way] = max(CLOCK.monotonic_s() - planned_s, cost.slowest_s.get(way, 0.0))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=600, help="messages a second, of 4,000 bytes")
    parser.add_argument("--fills", type=int, default=3, help="number of times that the disk is filled")
    arguments = parser.parse_args()
    logs.configure(level="error")
    with tempfile.TemporaryDirectory(prefix="ortoo-full-") as folder:
        try:
            run = filled(
                Path(folder), rate=arguments.rate, fills=arguments.fills, say=lambda text: sys.stdout.write(f"{text}\n")
            )
            cost = run_drill(run)
        except MountNotAllowed as error:
            sys.stderr.write(f"NOT CHECKED: a full disk needs the right to mount a tmpfs ({error})\n")
            return SKIPPED
    sys.stdout.write("\n".join([*cost.faults(), cost.summary(), ""]))
    return 1 if cost.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
