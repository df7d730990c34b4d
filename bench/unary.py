"""One message a call: durable unary sends against an empty proxy of the same shape."""

import argparse
import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import cast

import grpc

from apache.rocketmq.v2 import definition_pb2, service_pb2
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from bench.baselines import grpc_hops
from bench.percentiles import latency_figures
from bench.processes import cluster
from bench.report import Figures, main, ratio
from bench.traffic import make_topic
from ortoo.v1 import producer_pb2, record_pb2
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub

METHOD = (
    "unary apache.rocketmq.v2 SendMessage with one message, a fixed number in flight from one process, durable. The "
    "baseline is an empty grpc.aio proxy that carries each unary call over one stream to a sink, under the same load "
    "tool. ProducerService.Publish is measured beside it"
)
METADATA = (("x-mq-client-id", "bench"), ("x-mq-language", "PYTHON"))
Call = Callable[[], Awaitable[object]]
_NUMBERS = itertools.count()


async def load(call: Call, in_flight: int, seconds: float) -> Figures:
    """Keep `in_flight` calls in flight for `seconds`."""
    delays: list[float] = []
    stop_at = time.perf_counter() + seconds

    async def one_after_another() -> None:
        while (began := time.perf_counter()) < stop_at:
            await call()
            delays.append(time.perf_counter() - began)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(one_after_another())
    return {
        "messages_per_s": round(len(delays) / (time.perf_counter() - started)),
        **latency_figures(delays),
    }


async def measure(options: argparse.Namespace) -> Figures:
    """Both of our calls, then the empty proxy's."""
    body = bytes(options.body_bytes)
    async with cluster() as roles, grpc.aio.insecure_channel(roles.address) as channel:
        await make_topic(roles.address, "bench", 4)
        publish = ProducerServiceStub(channel).Publish
        request = producer_pb2.PublishRequest(topic="bench", messages=[record_pb2.Message(body=body)])
        await load(lambda: publish(request), options.in_flight, 1.0)
        published = await load(lambda: publish(request), options.in_flight, options.seconds)
        send = MessagingServiceStub(channel).SendMessage
        await load(lambda: send(_sent(body), metadata=METADATA), options.in_flight, 1.0)
        ours = await load(lambda: send(_sent(body), metadata=METADATA), options.in_flight, options.seconds)
    async with grpc_hops.hops() as channel:
        empty = cast("Callable[[bytes], Awaitable[bytes]]", channel.unary_unary("/bench.Hops/Call"))
        await load(lambda: empty(body), options.in_flight, 1.0)
        baseline = await load(lambda: empty(body), options.in_flight, options.seconds)
    return {
        **ours,
        "body_bytes": options.body_bytes,
        "in_flight": options.in_flight,
        "baselines": {"empty grpc.aio proxy, unary in, stream out": baseline},
        "publish": published,
        "ratios": {
            "messages_per_s to the empty proxy": ratio(ours["messages_per_s"], baseline["messages_per_s"]),
            "messages_per_s of Publish to the empty proxy": ratio(
                published["messages_per_s"], baseline["messages_per_s"]
            ),
        },
    }


def _sent(body: bytes) -> service_pb2.SendMessageRequest:
    """A request of an official producer: each message has its own id."""
    message = definition_pb2.Message(
        topic=definition_pb2.Resource(name="bench"),
        system_properties=definition_pb2.SystemProperties(message_id=f"01{next(_NUMBERS):032X}"),
        body=body,
    )
    return service_pb2.SendMessageRequest(messages=[message])


if __name__ == "__main__":
    main("unary", METHOD, measure, body_bytes=256, in_flight=64, seconds=6.0)
