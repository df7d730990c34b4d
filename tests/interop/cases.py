"""gRPC's interop test cases by grpc.aio; the sizes and texts are those of gRPC's description of the cases."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from tests.interop.service import ECHO_INITIAL, ECHO_TRAILING, messages, stubs

S = grpc.StatusCode
LARGE_REQUEST, LARGE_RESPONSE = 271_828, 314_159
REQUEST_SIZES = (27_182, 8, 1_828, 45_904)
RESPONSE_SIZES = (31_415, 9, 2_653, 58_979)
SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"


async def run(case: str, channel: grpc.aio.Channel) -> None:
    """Run a case on a channel. Errors: AssertionError."""
    cases: dict[str, Callable[[Any, grpc.aio.Channel], Awaitable[None]]] = {
        "empty_unary": empty_unary,
        "large_unary": large_unary,
        "client_streaming": client_streaming,
        "server_streaming": server_streaming,
        "ping_pong": ping_pong,
        "empty_stream": empty_stream,
        "cancel_after_begin": cancel_after_begin,
        "cancel_after_first_response": cancel_after_first_response,
        "timeout_on_sleeping_server": timeout_on_sleeping_server,
        "status_code_and_message": status_code_and_message,
        "special_status_message": special_status_message,
        "custom_metadata": custom_metadata,
        "unimplemented_method": unimplemented_method,
        "unimplemented_service": unimplemented_service,
    }
    await cases[case](stubs.TestServiceStub(channel), channel)


def payload(size: int) -> Any:
    return messages.Payload(body=bytes(size))


def asked(size: int, request_size: int = 0) -> Any:
    parameters = [messages.ResponseParameters(size=size)]
    return messages.StreamingOutputCallRequest(response_parameters=parameters, payload=payload(request_size))


async def ended_with(code: grpc.StatusCode, details: str | None, awaited: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await awaited
    assert failed.value.code() is code, failed.value
    assert details is None or failed.value.details() == details


async def empty_unary(stub: Any, _: Any) -> None:
    assert await stub.EmptyCall(messages.Empty()) == messages.Empty()


async def large_unary(stub: Any, _: Any) -> None:
    answer = await stub.UnaryCall(messages.SimpleRequest(response_size=LARGE_RESPONSE, payload=payload(LARGE_REQUEST)))
    assert answer.payload == payload(LARGE_RESPONSE)


async def client_streaming(stub: Any, _: Any) -> None:
    requests = (messages.StreamingInputCallRequest(payload=payload(size)) for size in REQUEST_SIZES)
    assert (await stub.StreamingInputCall(requests)).aggregated_payload_size == sum(REQUEST_SIZES)


async def server_streaming(stub: Any, _: Any) -> None:
    parameters = [messages.ResponseParameters(size=size) for size in RESPONSE_SIZES]
    call = stub.StreamingOutputCall(messages.StreamingOutputCallRequest(response_parameters=parameters))
    assert [len(answer.payload.body) async for answer in call] == [*RESPONSE_SIZES]


async def ping_pong(stub: Any, _: Any) -> None:
    call = stub.FullDuplexCall()
    for request_size, size in zip(REQUEST_SIZES, RESPONSE_SIZES, strict=True):
        await call.write(asked(size, request_size))
        assert (await call.read()).payload == payload(size)
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is S.OK


async def empty_stream(stub: Any, _: Any) -> None:
    call = stub.FullDuplexCall()
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is S.OK


async def cancel_after_begin(stub: Any, _: Any) -> None:
    call = stub.StreamingInputCall()
    await call.wait_for_connection()
    call.cancel()
    assert await call.code() is S.CANCELLED


async def cancel_after_first_response(stub: Any, _: Any) -> None:
    call = stub.FullDuplexCall()
    await call.write(asked(RESPONSE_SIZES[0], REQUEST_SIZES[0]))
    await call.read()
    call.cancel()
    assert await call.code() is S.CANCELLED


async def timeout_on_sleeping_server(stub: Any, _: Any) -> None:
    async def never_more() -> AsyncIterator[Any]:
        yield messages.StreamingOutputCallRequest(payload=payload(REQUEST_SIZES[0]))
        await asyncio.get_running_loop().create_future()

    # If the deadline passes while grpc.aio writes the request, it reports INTERNAL instead of the deadline.
    await ended_with(S.DEADLINE_EXCEEDED, None, stub.FullDuplexCall(never_more(), timeout=0.5).read())


async def status_code_and_message(stub: Any, _: Any) -> None:
    await _ended_as_asked(stub, "test status message")


async def special_status_message(stub: Any, _: Any) -> None:
    await _ended_as_asked(stub, SPECIAL)


async def _ended_as_asked(stub: Any, text: str) -> None:
    status = messages.EchoStatus(code=S.UNKNOWN.value[0], message=text)
    await ended_with(S.UNKNOWN, text, stub.UnaryCall(messages.SimpleRequest(response_status=status)))
    call = stub.FullDuplexCall()
    await call.write(messages.StreamingOutputCallRequest(response_status=status))
    await ended_with(S.UNKNOWN, text, call.read())


async def custom_metadata(stub: Any, _: Any) -> None:
    given = ((ECHO_INITIAL, "test_initial_metadata_value"), (ECHO_TRAILING, b"\xab\xab\xab"))
    stream = stub.FullDuplexCall(metadata=given)
    await stream.write(asked(1))
    await stream.done_writing()
    assert [len(answer.payload.body) async for answer in stream] == [1]
    for call in (stub.UnaryCall(messages.SimpleRequest(response_size=1), metadata=given), stream):
        assert dict(await call.initial_metadata())[ECHO_INITIAL] == given[0][1]
        assert dict(await call.trailing_metadata())[ECHO_TRAILING] == given[1][1]
        assert await call.code() is S.OK


async def unimplemented_method(stub: Any, _: Any) -> None:
    await ended_with(S.UNIMPLEMENTED, None, stub.UnimplementedCall(messages.Empty()))


async def unimplemented_service(_: Any, channel: grpc.aio.Channel) -> None:
    stub = stubs.UnimplementedServiceStub(channel)
    await ended_with(S.UNIMPLEMENTED, None, stub.UnimplementedCall(messages.Empty()))
