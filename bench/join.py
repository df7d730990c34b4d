"""The cost of a push consumer that joins a group with many queues, in a whole cluster in this process."""

import argparse
import tempfile
import time
from pathlib import Path

from bench.report import Figures, main
from ortoo.client import ConsumerSettings, connect
from ortoo.common.process.clock import SystemClock
from ortoo.enode.app import RunningEnode
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster

CLOCK = SystemClock()
METHOD = (
    "one consumer joins a new group of a topic on one enode, until the group has an offset in every queue, and leaves. "
    "Time, and processor time of the client and all services together"
)


async def join(cluster: InProcessCluster, queues: int) -> Figures:
    """Join and leave once."""
    topic_id = (await cluster.create_topic(f"t{queues}", queues=queues)).topic_id
    enode = cluster.running["enode-0"]
    assert isinstance(enode, RunningEnode)
    async with connect(cluster.address) as mq:
        while enode.store.topic(topic_id) is None:
            await CLOCK.sleep(0.01)
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        async with mq.consumer(f"g{queues}", f"t{queues}", ConsumerSettings(from_beginning=True)):
            while len(enode.store.offsets.of(topic_id, f"g{queues}")) < queues:
                await CLOCK.sleep(0.01)
        return {
            "s": round(time.monotonic() - began_s, 2),
            "processor_s": round(time.process_time() - began_cpu_s, 2),
        }


async def measure(options: argparse.Namespace) -> Figures:
    """Join topics with an increasing number of queues."""
    with tempfile.TemporaryDirectory(prefix="ortoo-bench-") as folder:
        async with open_cluster(Path(folder)) as cluster:
            await join(cluster, 4)  # imports and connections
            return {f"queues_{queues}": await join(cluster, int(queues)) for queues in options.queues.split(",")}


if __name__ == "__main__":
    main("join", METHOD, measure, queues="64,256,1024")
