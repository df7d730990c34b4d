"""Produce and consume at once: every message verified by content and order."""

import argparse
import time
from operator import itemgetter

from bench.baselines import grpc_hops
from bench.processes import cluster, cpu_us_per_message
from bench.report import Figures, main, ratio
from bench.traffic import consuming, make_topic, produce_for
from ortoo.client import connect

METHOD = (
    "one producer and one push consumer in one Python process, snode and enode beside them, 8 queues. fdatasync "
    "before each acknowledgement. Time from the first send to the last delivery; contents and order of every message "
    "are checked"
)


async def measure(options: argparse.Namespace) -> Figures:
    """End to end, then the same bytes over bare gRPC hops there and back."""
    grpc_before = await grpc_hops.streamed(options.seconds / 4)
    async with cluster() as roles, connect(roles.address) as mq:
        await make_topic(roles.address, "bench", 8)
        async with consuming(roles.address, "bench", "bench") as received, mq.producer("bench") as producer:
            before, started = roles.cpu_s(), time.perf_counter()
            sent = await produce_for(producer, options.body_bytes, options.seconds, verify=True)
            await received.reach(sent.messages)
            sent.seconds = time.perf_counter() - started
            faults = received.faults(sent)
            cpu = cpu_us_per_message(before, roles.cpu_s(), sent.messages)
        memory = roles.memory_mib()
    grpc = max(grpc_before, await grpc_hops.streamed(options.seconds / 4), key=itemgetter("mb_per_s"))
    figures = sent.figures()
    return {
        **figures,
        "body_bytes": options.body_bytes,
        **faults,
        "cpu_us_per_message": cpu,
        "memory_mib": memory,
        "baselines": {"raw grpc.aio, two hops, 1 MiB blobs, one way": grpc},
        "ratios": {"mb_per_s to raw grpc.aio one way": ratio(figures["mb_per_s"], grpc["mb_per_s"])},
    }


if __name__ == "__main__":
    main("end_to_end", METHOD, measure, body_bytes=256, seconds=8.0)
