"""The disk of the leader of three replicas hangs, or is slow, under sends: real processes, whose sync does not return.

    python -m tests.e2e.ailing_leader

The other two disks are a majority. A leader whose disk hangs must be replaced, and a slow disk must not delay sends.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ortoo.client import Client, Producer, connect
from ortoo.client.produce.producer_settings import ProducerSettings
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.processes import RoleProcess
from tests.deploy import ailing_enode
from tests.deploy.ailing_process import AilingProcess
from tests.e2e.drill import run_drill, say
from tests.e2e.replica_cluster import leading, replica_cluster, whole

TOPIC = "t"
HANGS_S = 3_600.0
SLOW_SYNC_S = 0.4
SENDS = 100
START_MAX_S = 120.0
CLOCK = SystemClock()


class AilingReplica(AilingProcess):
    """A replica whose disk can be made slow."""

    def __init__(self, role: str, folder: Path, environ: Mapping[str, object]) -> None:
        """In `folder`, on a healthy disk."""
        super().__init__(role, folder, environ)
        self.ready_timeout_s = START_MAX_S


@dataclass(frozen=True, slots=True)
class Seen:
    """The measured times."""

    replaced_s: float
    """From the hang of the leader's disk to the first acknowledgement of another leader."""
    usual_s: float
    """The median time of a send."""
    slow_s: float
    """The median time of a send while each sync of the leader takes `SLOW_SYNC_S`."""
    lost: int
    """The number of acknowledged messages that cannot be read."""


async def ail_leader(folder: Path) -> Seen:
    """Make the disk of the leader slow, then heal it, then let the disk of the leader hang."""
    async with (
        replica_cluster(folder, make_replica=AilingReplica) as cluster,
        connect(cluster.address) as mq,
    ):
        await whole(mq)
        await mq.admin.ensure_topic(TOPIC, queue_count=1)
        async with mq.producer(TOPIC, ProducerSettings(linger_ms=0)) as producer:
            usual = await times_of_sends(producer)
            first = ailing(await leading(cluster, mq))
            first.ail(sync_delay_s=SLOW_SYNC_S)
            await CLOCK.sleep(2 * ailing_enode.LOOK_INTERVAL_S)
            slow = await times_of_sends(producer)
            first.ail(sync_delay_s=0.0)
            await whole(mq)
            second = ailing(await leading(cluster, mq))
            second.ail(sync_delay_s=HANGS_S)
            begun_s, acknowledged = CLOCK.monotonic_s(), 0
            while await leading(cluster, mq) is second:
                await producer.send(b"x")
                acknowledged += 1
            await producer.send(b"x")
            replaced_s = CLOCK.monotonic_s() - begun_s
            again = await times_of_sends(producer)
        acknowledged += 1 + len(usual) + len(slow) + len(again)
        lost = acknowledged - await stored(mq)
        assert second.alive
    return Seen(replaced_s, statistics.median(usual), statistics.median(slow), lost)


def ailing(process: RoleProcess) -> AilingReplica:
    """The leader, as a replica that can be made ill."""
    assert isinstance(process, AilingReplica)
    return process


async def times_of_sends(producer: Producer) -> list[float]:
    """Send messages one after another; the time of each until its acknowledgement, seconds."""
    times = []
    for _ in range(SENDS):
        begun_s = CLOCK.monotonic_s()
        await producer.send(b"x")
        times.append(CLOCK.monotonic_s() - begun_s)
    return times


async def stored(mq: Client) -> int:
    """The number of messages of the topic."""
    [queue] = (await mq.admin.describe_topic(TOPIC)).queues
    return queue.end_offset


async def report() -> int:
    """Run it once and report the times."""
    with tempfile.TemporaryDirectory() as folder:
        seen = await ail_leader(Path(folder))
    say(f"after the hang of its disk the leader is replaced within {seen.replaced_s:.2f} s, and {seen.lost} are lost")
    say(f"a send takes {1000 * seen.usual_s:.1f} ms, and {1000 * seen.slow_s:.1f} ms with a slow disk of the leader")
    return int(seen.replaced_s > 3 or seen.slow_s > 0.1 or seen.lost > 0)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    sys.exit(run_drill(report()))
