"""Memory and idle processor time of push sessions in a snode.

python -m tests.e2e.many_sessions --sessions 2000
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ortoo.common.grpc.channels import Channels
from ortoo.common.logs import logger as logs
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import admin_pb2_grpc, consumer_pb2, consumer_pb2_grpc, namesrv_pb2
from ortoo.verification.servers.processes import process_cluster
from tests.e2e.drill import run_drill

TOPIC = "t"
QUEUES = 10
GROUP_SIZE = 10
MEMORY_GOAL_BYTES = 60_000
CPU_GOAL = 0.03


@dataclass(frozen=True, slots=True)
class ManySessions:
    """The results."""

    sessions: int
    opened_in_s: float
    bytes_each: int
    idle_cpu: float
    """Share of one core."""

    @property
    def faults(self) -> list[str]:
        """The missed goals."""
        return [
            text
            for broken, text in (
                (self.bytes_each > MEMORY_GOAL_BYTES, f"{self.bytes_each} bytes a session"),
                (self.idle_cpu > CPU_GOAL, f"{self.idle_cpu:.1%} of a core while idle"),
            )
            if broken
        ]


def memory_bytes(pid: int) -> int:
    """The resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def open_session(stub: consumer_pb2_grpc.ConsumerServiceStub, number: int) -> Any:
    """Open one session that has its queue."""
    call: Any = stub.Push()
    opening = consumer_pb2.OpenSession(
        group=f"g{number // GROUP_SIZE}",
        client_id=f"c{number:05}",
        subscriptions=[consumer_pb2.Subscription(topic=TOPIC)],
    )
    await call.write(consumer_pb2.PushRequest(open=opening))
    await call.write(consumer_pb2.PushRequest(credit=consumer_pb2.Credit(messages=1000, bytes=1 << 20)))
    await call.read()
    return call


async def many_sessions(folder: Path, *, count: int, idle_s: float) -> ManySessions:
    """Run it."""
    clock = SystemClock()
    async with process_cluster(folder, environ={"snode": {"LOG_LEVEL": "warning"}}) as cluster, Channels() as channels:
        admin = admin_pb2_grpc.AdminServiceStub(channels.channel_to(cluster.address))
        await admin.CreateTopic(namesrv_pb2.CreateTopicRequest(name=TOPIC, read_queue_count=QUEUES))
        pid = cluster.snode.pid
        stub = consumer_pb2_grpc.ConsumerServiceStub(channels.channel_to(cluster.address))
        calls = [await open_session(stub, number) for number in range(GROUP_SIZE)]
        await clock.sleep(2)
        before_bytes, began_s = memory_bytes(pid), clock.monotonic_s()
        while len(calls) < count:
            part = range(len(calls), min(count, len(calls) + 100))
            calls += await asyncio.gather(*(open_session(stub, number) for number in part))
        opened_s = clock.monotonic_s() - began_s
        await clock.sleep(5)
        after_bytes, used_s = memory_bytes(pid), cpu_s(pid)
        await clock.sleep(idle_s)
        idle = (cpu_s(pid) - used_s) / idle_s
        for call in calls:
            call.cancel()
        each = (after_bytes - before_bytes) // (count - GROUP_SIZE)
        return ManySessions(count, round(opened_s, 1), each, round(idle, 4))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=2_000)
    parser.add_argument("--idle", type=float, default=20)
    arguments = parser.parse_args()
    logs.configure(level="error")
    with tempfile.TemporaryDirectory() as folder:
        seen = run_drill(many_sessions(Path(folder), count=arguments.sessions, idle_s=arguments.idle))
    sys.stdout.write(json.dumps({**asdict(seen), "faults": seen.faults}) + "\n")
    sys.exit(bool(seen.faults))


if __name__ == "__main__":
    main()
