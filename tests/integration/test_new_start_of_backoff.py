"""Reconnects of a client: pauses grow while nothing answers, and start from the shortest once a call worked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from ortoo.client import connect
from ortoo.client.app import Client
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from ortoo.v1 import consumer_pb2, producer_pb2, session_pb2, topic_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceServicer, add_ConsumerServiceServicer_to_server
from ortoo.v1.producer_pb2_grpc import ProducerServiceServicer, add_ProducerServiceServicer_to_server
from ortoo.v1.session_pb2_grpc import SessionServiceServicer, add_SessionServiceServicer_to_server
from ortoo.verification.servers.listening import serve_servicer

WORKS = (False, False, True, False, False, True, True)
"""For each call: whether it opens and works before it breaks."""
ATTEMPTS = [1, 2, 0, 1, 2, 0, 0]
"""After each call: the number of failures in a row before the next one."""


class NoticedBackoff(Backoff):
    """Records the requested attempts, and returns no delay."""

    attempts: list[int]

    def delay_s(self, attempt: int, randomness: Randomness) -> float:
        """Almost no pause."""
        self.attempts.append(attempt)
        return 0.001


class Faltering:
    """A snode that serves calls as WORKS tells, and breaks every one of them."""

    def __init__(self) -> None:
        self.calls = 0

    async def falter(self, context: Any) -> bool:
        """Whether this call works for a moment; otherwise it fails at once."""
        works = self.calls < len(WORKS) and WORKS[self.calls]
        self.calls += 1
        if not works:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        return works


class Pushing(Faltering, ConsumerServiceServicer):
    async def Push(self, request_iterator: Any, context: Any) -> AsyncIterator[consumer_pb2.PushResponse]:
        await self.falter(context)
        yield consumer_pb2.PushResponse(opened=consumer_pb2.SessionOpened(session_id="s", heartbeat_interval_ms=1000))


class Connecting(Faltering, SessionServiceServicer):
    async def Connect(self, request_iterator: Any, context: Any) -> AsyncIterator[session_pb2.ConnectResponse]:
        await self.falter(context)
        yield session_pb2.ConnectResponse(
            opened=consumer_pb2.SessionOpened(session_id="s", heartbeat_interval_ms=1000, client_id="c")
        )


class Producing(Faltering, ProducerServiceServicer):
    async def QueryRoute(self, request: Any, context: Any) -> producer_pb2.QueryRouteResponse:
        queue = topic_pb2.Queue(topic="t", enode="e", queue_id=0)
        return producer_pb2.QueryRouteResponse(writable_queues=[queue], readable_queues=[queue])

    async def Produce(self, request_iterator: Any, context: Any) -> AsyncIterator[producer_pb2.ProduceResponse]:
        first = await anext(aiter(request_iterator))
        await self.falter(context)
        yield producer_pb2.ProduceResponse(request_id=first.request_id)


@asynccontextmanager
async def client_of(add: Any, servicer: Any) -> AsyncIterator[tuple[Client, NoticedBackoff]]:
    """A client of that snode, and the attempts recorded by its back-off."""
    backoff = NoticedBackoff()
    object.__setattr__(backoff, "attempts", [])
    async with serve_servicer(add, servicer) as address, connect(address) as mq:
        mq._connection.backoff = backoff
        yield mq, backoff


async def until_asked(backoff: NoticedBackoff) -> list[int]:
    """The first recorded attempts, once there are enough."""
    async with asyncio.timeout(60):
        while len(backoff.attempts) < len(ATTEMPTS):
            await SystemClock().sleep(0.005)
    return backoff.attempts[: len(ATTEMPTS)]


@pytest.mark.parametrize("kind", ["push", "session"])
async def test_a_consumers_pauses_begin_again_after_a_session_that_was_open(kind: str) -> None:
    """E-044: consecutive breaks make pauses grow. A break after a working session is the first of a new series."""
    if kind == "push":
        scene = client_of(add_ConsumerServiceServicer_to_server, Pushing())
        async with scene as (mq, backoff), mq.consumer("g", ["t"]):
            assert await until_asked(backoff) == ATTEMPTS
    else:
        async with client_of(add_SessionServiceServicer_to_server, Connecting()) as (mq, backoff):
            joining = asyncio.get_running_loop().create_task(mq.pull_consumer("g", ["t"]).__aenter__())
            assert await until_asked(backoff) == ATTEMPTS
            joining.cancel()


async def test_a_producers_pauses_begin_again_after_a_stream_that_answered() -> None:
    """The same for the stream of batches: an answer proves that it works."""
    async with client_of(add_ProducerServiceServicer_to_server, Producing()) as (mq, backoff):
        producer = mq.producer("t")
        await producer.__aenter__()

        async def send_on() -> None:
            while True:
                await producer.send(b"x")

        sending = asyncio.get_running_loop().create_task(send_on())
        assert await until_asked(backoff) == ATTEMPTS
        sending.cancel()
        await producer.__aexit__(RuntimeError, RuntimeError(), None)
