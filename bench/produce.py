"""Native produce: one producer, snode, enode, fdatasync before every acknowledgement."""

import argparse
from operator import itemgetter

from bench.baselines import grpc_hops, valkey_stream
from bench.baselines.nats_jetstream import jetstream, publish
from bench.processes import cluster, cpu_us_per_message
from bench.report import Figures, main, ratio
from bench.traffic import make_topic, produce_for
from ortoo.client import connect

METHOD = (
    "one Python producer sends distinct bodies without key through the snode to the enode, 8 queues. Every process "
    "runs on this machine with default settings: fdatasync before each acknowledgement. Ends when all are "
    "acknowledged. Large bodies show the bytes a second when messages cost little. Raw gRPC before and after, the "
    "better counts"
)


async def measure(options: argparse.Namespace) -> Figures:
    """Our figures, then each baseline, in one run."""
    body = bytes(options.body_bytes)
    grpc_before = await grpc_hops.streamed(options.seconds / 4)
    async with cluster() as roles, connect(roles.address) as mq:
        await make_topic(roles.address, "bench", 8)
        async with mq.producer("bench") as producer:
            await produce_for(producer, options.body_bytes, 1.0)
            before = roles.cpu_s()
            ours = await produce_for(producer, options.body_bytes, options.seconds)
            cpu = cpu_us_per_message(before, roles.cpu_s(), ours.messages)
            large = await produce_for(producer, options.large_body_bytes, options.seconds / 2)
        memory = roles.memory_mib()
    grpc = max(grpc_before, await grpc_hops.streamed(options.seconds / 4), key=itemgetter("mb_per_s"))
    async with valkey_stream.valkey() as client:
        valkey = await valkey_stream.xadd_pipelined(client, body, options.seconds / 2)
    async with jetstream("always") as context:
        nats_synced = await publish(context, body, options.seconds / 2)
    async with jetstream(None) as context:
        nats_default = await publish(context, body, options.seconds / 2)
    figures = ours.figures()
    return {
        **figures,
        "body_bytes": options.body_bytes,
        "cpu_us_per_message": cpu,
        "large_bodies": {"body_bytes": options.large_body_bytes, **large.figures()},
        "memory_mib": memory,
        "baselines": {
            "raw grpc.aio, two hops, 1 MiB blobs": grpc,
            "Valkey XADD pipelined, appendfsync always": valkey,
            "NATS JetStream, sync_interval always": nats_synced,
            "NATS JetStream, default (not synced)": nats_default,
        },
        "ratios": {
            "mb_per_s to raw grpc.aio": ratio(figures["mb_per_s"], grpc["mb_per_s"]),
            "mb_per_s of large bodies to raw grpc.aio": ratio(large.figures()["mb_per_s"], grpc["mb_per_s"]),
            "messages_per_s to Valkey": ratio(figures["messages_per_s"], valkey["messages_per_s"]),
            "messages_per_s to NATS synced": ratio(figures["messages_per_s"], nats_synced["messages_per_s"]),
            "messages_per_s to NATS default": ratio(figures["messages_per_s"], nats_default["messages_per_s"]),
        },
    }


if __name__ == "__main__":
    main("produce", METHOD, measure, body_bytes=256, large_body_bytes=16384, seconds=8.0)
