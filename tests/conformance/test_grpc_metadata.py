"""Metadata, the properties of a call at both ends, serializers, and interceptors of callers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tests.conformance.wire import (
    SERVICE,
    Wire,
    conversing,
    failure,
    path,
    serving,
    unary,
)

EOF = grpc.aio.EOF


async def echo(request: bytes, context: Any) -> bytes:
    return request


async def test_metadata_of_the_request(wire: Wire) -> None:
    """Repeated keys keep their order, and -bin keys carry arbitrary bytes; the handler sees all of them."""
    sent = (("k", "v1"), ("k", "v2"), ("bytes-bin", b"\0\xff\r\n"), ("empty", ""))

    async def seen(request: bytes, context: Any) -> bytes:
        found = [(key, value) for key, value in context.invocation_metadata() if key != "user-agent"]
        return repr(found).encode()

    async with serving(wire, Seen=unary(seen)) as served:
        assert await served.call("Seen", metadata=sent) == repr(list(sent)).encode()
        assert await served.call("Seen") == b"[]"


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ((("k-bin", "text"),), TypeError),
        ((("k", 1),), TypeError),
        ((("Upper", "v"),), grpc.aio.InternalError),
        ((("k", "é"),), grpc.aio.InternalError),
    ],
)
async def test_metadata_that_cannot_be_sent(wire: Wire, metadata: Any, error: type[Exception]) -> None:
    """Bytes and text in the wrong place are TypeErrors; characters that HTTP/2 does not allow fail the call's batch."""
    async with serving(wire, Echo=unary(echo)) as served:
        with pytest.raises(error):
            await served.call("Echo", metadata=metadata)


async def test_a_value_with_outer_spaces(wire: Wire) -> None:
    """The transport h2 resets the call, as HTTP/2 requires. A server of grpc.aio accepts the value."""
    async with serving(wire, Echo=unary(echo)) as served:
        for value in (" before", "behind "):
            call = served.call("Echo", b"x", metadata=(("k", value),))
            if wire.name != "h2":
                assert await call == b"x"
                continue
            error = await failure(call)
            assert error.code() is grpc.StatusCode.INTERNAL
            assert "RST_STREAM with error code 1" in (error.details() or "")  # PROTOCOL_ERROR
        assert await served.call("Echo", b"y") == b"y"


async def test_metadata_of_the_answer(wire: Wire) -> None:
    """Initial metadata arrives before any message, trailing metadata with the status; it cannot be sent twice."""
    go_on = asyncio.Event()

    async def both_kinds(requests: Any, context: Any) -> AsyncIterator[bytes]:
        await context.send_initial_metadata((("first", "1"), ("first", "2"), ("f-bin", b"\xff")))
        with pytest.raises(grpc.aio.UsageError, match="already sent"):
            await context.send_initial_metadata((("second", "1"),))
        await go_on.wait()
        yield b"message"
        context.set_trailing_metadata((("last", "1"), ("l-bin", b"\0")))

    async with serving(wire, Both=conversing(both_kinds)) as served:
        call = served.both("Both")
        assert tuple(await call.initial_metadata()) == (("first", "1"), ("first", "2"), ("f-bin", b"\xff"))
        go_on.set()
        assert await call.read() == b"message"
        assert tuple(await call.trailing_metadata()) == (("last", "1"), ("l-bin", b"\0"))
        assert await call.read() is EOF


async def test_without_metadata_there_is_none(wire: Wire) -> None:
    """Both kinds are empty if the server set none."""
    async with serving(wire, Echo=unary(echo)) as served:
        call = served.call("Echo")
        assert len(await call.initial_metadata()) == 0
        assert len(await call.trailing_metadata()) == 0


async def test_what_a_handler_knows_of_its_call(wire: Wire) -> None:
    """The peer is an address, the remaining time follows the caller's deadline, and no status is set yet."""
    known: dict[str, Any] = {}

    async def knows(request: bytes, context: Any) -> bytes:
        known.update(
            peer=context.peer(),
            remaining=context.time_remaining(),
            code=context.code(),
            details=context.details(),
            trailing=tuple(context.trailing_metadata()),
            done=context.done(),
            cancelled=context.cancelled(),
            security=context.auth_context()["transport_security_type"],
            identities=context.peer_identities(),
        )
        return b""

    async with serving(wire, Knows=unary(knows)) as served:
        await served.call("Knows", timeout=30)
        assert known.pop("peer").startswith("ipv4:127.0.0.1:")
        assert 20 < known.pop("remaining") <= 30.5
        assert known == {
            "code": None,
            "details": "",
            "trailing": (),
            "done": False,
            "cancelled": False,
            "security": [b"insecure"],
            "identities": None,
        }
        await served.call("Knows")
        assert known["remaining"] is None


async def test_what_a_caller_knows_of_its_call(wire: Wire) -> None:
    """The remaining time falls from the timeout to 0; without a timeout it is None."""
    async with serving(wire, Echo=unary(echo)) as served:
        call = served.call("Echo", timeout=30)
        assert 20 < call.time_remaining() <= 30
        await call
        free = served.call("Echo")
        assert free.time_remaining() is None
        await free


async def test_done_callbacks(wire: Wire) -> None:
    """Both ends call them once, with the call; the caller's run as soon as the call has ended."""
    told: list[tuple[str, bool]] = []
    ended = asyncio.Event()

    async def tells(request: bytes, context: Any) -> bytes:
        context.add_done_callback(lambda got: told.append(("server", got is context and got.done())))
        context.add_done_callback(lambda _: ended.set())
        return b""

    async with serving(wire, Tells=unary(tells)) as served:
        call = served.call("Tells")
        call.add_done_callback(lambda got: told.append(("client", got is call and got.done())))
        await call
        await ended.wait()
        assert sorted(told) == [("client", True), ("server", True)]
        call.add_done_callback(lambda _: told.append(("late", True)))
        assert told[-1] == ("late", True)


async def test_serializers_stand_between_messages_and_bytes(wire: Wire) -> None:
    """The bytes sent are those of the caller's serializer; the handler's side uses its own."""

    async def add(numbers: list[int], context: Any) -> int:
        return sum(numbers)

    handler: Any = grpc.unary_unary_rpc_method_handler(
        add,
        request_deserializer=lambda data: [int(part) for part in data.split()],
        response_serializer=lambda number: b"%d" % number,
    )
    async with serving(wire, Add=handler) as served:
        method = served.channel.unary_unary(
            path("Add"), request_serializer=str.encode, response_deserializer=lambda data: f"<{data.decode()}>"
        )
        assert await method("1 2 39") == "<42>"


async def test_a_serializer_that_fails_gives_nothing(wire: Wire) -> None:
    """grpc.aio logs it and continues without a message: an empty request is sent, an answer becomes None.

    A caller that must detect the error has to check before it sends.
    """

    def broken(_: Any) -> Any:
        raise ValueError("cannot")

    async with serving(wire, Echo=unary(echo)) as served:
        assert await served.channel.unary_unary(path("Echo"), request_serializer=broken)(b"x") == b""
        assert await served.channel.unary_unary(path("Echo"), response_deserializer=broken)(b"x") is None


async def test_a_deserializer_of_the_server_that_fails_is_an_unknown_error(wire: Wire) -> None:
    """The handler is not called, and the caller gets the error that was raised."""

    def broken(_: Any) -> Any:
        raise ValueError("cannot")

    handler: Any = grpc.unary_unary_rpc_method_handler(echo, request_deserializer=broken)
    async with serving(wire, Echo=handler) as served:
        error = await failure(served.call("Echo"))
        assert error.code() is grpc.StatusCode.UNKNOWN
        assert "cannot" in (error.details() or "")


async def test_interceptors_of_the_client(wire: Wire) -> None:
    """They see the method and the timeout and may change metadata; the deadline covers their time as well."""
    seen: list[tuple[Any, Any]] = []

    class Adding(grpc.aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            seen.append((details.method, details.timeout))
            details.metadata.add("added", "yes")
            return await continuation(details, request)

    async def added(request: bytes, context: Any) -> bytes:
        assert context.time_remaining() is not None
        return str(dict(context.invocation_metadata())["added"]).encode()

    async with serving(wire, Added=unary(added)) as served:
        channel = wire.channel(served.address, (), (Adding(),))
        assert await channel.unary_unary(path("Added"))(b"", timeout=20, metadata=grpc.aio.Metadata()) == b"yes"
        assert seen == [(f"/{SERVICE}/Added".encode(), 20)]
        await channel.close()
