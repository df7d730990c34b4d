"""Attacks of hostile clients beside invalid requests: reading nothing, half-open connections, floods of errors."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import grpc

from ortoo.common.grpc.channels import MESSAGE_BYTES_MAX
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import consumer_pb2, consumer_pb2_grpc, producer_pb2, producer_pb2_grpc

DEAF = (("grpc.max_receive_message_length", MESSAGE_BYTES_MAX), ("grpc.http2.lookahead_bytes", 1 << 10))
HALF_OPEN_PREFACES = (
    b"",
    b"PRI",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/1.1\r\n",
    b"\x16\x03\x01\x02\x00\x01",
)
"""The bytes that each half-open connection sends: none, parts of a preface, no HTTP/2, TLS."""

EMPTY_SETTINGS = bytes.fromhex("000000040000000000")
HEAD_OF_A_CALL = bytes.fromhex("0000400104000000018386") + b"\x00" * 62
"""The part of a HEADERS frame for a new stream that is sent before the connection is opened again."""
SLOW_S = 0.5


@contextlib.asynccontextmanager
async def half_open(addresses: Sequence[str], count: int) -> AsyncIterator[int]:
    """Hold up to `count` idle connections open; yields the number that the machine allows."""
    sockets: list[socket.socket] = []
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        for number in range(count):
            host, _, port = addresses[number % len(addresses)].rpartition(":")
            try:
                one = stack.enter_context(socket.socket())
                one.setblocking(False)
                await loop.sock_connect(one, (host, int(port)))
                await loop.sock_sendall(one, HALF_OPEN_PREFACES[number % len(HALF_OPEN_PREFACES)])
            except OSError:
                break
            sockets.append(one)
        yield len(sockets)


@contextlib.asynccontextmanager
async def deaf_sessions(
    address: str,
    group: str,
    topic: str,
    count: int,
    background: Background | None = None,
    read: Callable[[Any], Coroutine[Any, Any, None]] | None = None,
) -> AsyncIterator[None]:
    """Hold `count` push sessions open that grant unlimited credit and read nothing, or read as `read` does."""
    async with contextlib.AsyncExitStack() as stack:
        for number in range(count):
            channel = await stack.enter_async_context(
                grpc.aio.insecure_channel(address, options=[*DEAF, ("n", number)])
            )
            call = consumer_pb2_grpc.ConsumerServiceStub(channel).Push()
            stack.callback(call.cancel)
            wanted = consumer_pb2.OpenSession(
                group=f"{group}-{number}", subscriptions=[consumer_pb2.Subscription(topic=topic)]
            )
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await call.write(consumer_pb2.PushRequest(open=wanted))
                await call.write(consumer_pb2.PushRequest(credit=consumer_pb2.Credit(messages=1 << 30, bytes=1 << 40)))
            if background is not None and read is not None:
                background.spawn("read", read(call))
        yield


@contextlib.asynccontextmanager
async def slow_readers(address: str, group: str, topic: str, count: int) -> AsyncIterator[None]:
    """Hold `count` push sessions open that read one message every `SLOW_S`."""
    clock = SystemClock()

    async def read(call: Any) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while await call.read() is not grpc.aio.EOF:
                await clock.sleep(SLOW_S)

    async with Background("slow readers") as background, deaf_sessions(address, group, topic, count, background, read):
        yield


async def slow_writers(addresses: Sequence[str], until: asyncio.Event, count: int = 60) -> None:
    """Open connections that send HTTP/2's preface, and then the head of a call, byte by byte, without end."""
    clock = SystemClock()

    async def write(address: str) -> None:
        host, _, port = address.rpartition(":")
        while not until.is_set():
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port))
                try:
                    writer.write(HALF_OPEN_PREFACES[2] + EMPTY_SETTINGS)
                    for byte in HEAD_OF_A_CALL:
                        if until.is_set():
                            break
                        writer.write(bytes([byte]))
                        await writer.drain()
                        await clock.sleep(SLOW_S)
                finally:
                    writer.close()

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(write(addresses[number % len(addresses)]))


async def flood(address: str, seconds_until: asyncio.Event, senders: int = 8) -> int:
    """Send requests that cause log lines, at full speed, until the event; returns the number of answers."""
    answered = 0
    async with grpc.aio.insecure_channel(address) as channel:
        stub = producer_pb2_grpc.ProducerServiceStub(channel)
        refused: Any = producer_pb2.RecallMessageRequest(recall_handle="AAAA")
        malformed: Any = channel.unary_unary("/ortoo.v1.ProducerService/Publish", request_serializer=bytes)

        async def one(number: int) -> None:
            nonlocal answered
            while not seconds_until.is_set():
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await (malformed(b"\xff\xff\xff") if number % 2 else stub.RecallMessage(refused, timeout=5))
                answered += 1

        async with asyncio.TaskGroup() as group:
            for number in range(senders):
                group.create_task(one(number))
    return answered
