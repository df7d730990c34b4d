"""The caller: its identity in the headers of every call, and its deadline."""

from typing import Any, NamedTuple

import grpc

from apache.rocketmq.v2.definition_pb2 import Code
from ortoo.common.grpc.layers.arrival import HeaderTexts
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError

CLIENT_ID_BYTES_MAX = 512
WAIT_MS_MAX = 20_000
MARGIN_MS = 500
"""Time before the client's deadline at which an empty answer is sent. A later one is an error for the client."""
REQUEST_TIMEOUT_MS = 3_000
"""The request timeout of clients that send none."""
SHORT_MS = 1_000
"""With less time until its deadline, a poll does not wait."""
Context = grpc.aio.ServicerContext[Any, Any]


class Caller(NamedTuple):
    """The metadata of one call of a client. Its texts may be empty or malformed."""

    client_id: str
    language: str = ""
    """The language, as the client writes it: `HTTP` is Node.js."""
    client_version: str = ""
    remaining_s: float | None = None
    """Time until the client's deadline; None = that of the context, or unlimited without a context."""
    context: Context | None = None
    waited_s: float = 0.0
    """The time for which the client already waits."""

    def time_left_s(self) -> float | None:
        """Time until the client's deadline; None = unlimited. Only polls ask, so it is not kept for each call."""
        if self.remaining_s is None and self.context is not None:
            return self.context.time_remaining()
        return self.remaining_s

    def peer(self) -> str:
        """The address of the caller, host:port. Reading it takes a tenth of the time of a send, so it is not kept."""
        return peer_of(self.context) if self.context is not None else ""

    async def end(self) -> None:
        """End the call successfully, and wait until all answers are sent.

        With grpc.aio this is not needed, because each `yield` waits. Errors: CancelledError if the client disconnected
        before all answers were sent.
        """
        if (end := getattr(self.context, "end", None)) is not None:
            await end()

    def wait_ms(self, wanted_ms: int, request_timeout_ms: int = REQUEST_TIMEOUT_MS) -> int:
        """The time that a poll may wait: at most `wanted_ms`, or if it is 0, as long as the client's deadline allows.

        With 0, half of the client's timeout for other requests is kept in reserve, as in RocketMQ.
        """
        if self.waited_s:
            wanted_ms = max(1, (wanted_ms or WAIT_MS_MAX) - int(self.waited_s * 1000))
        remaining_s = self.time_left_s()
        if remaining_s is None:
            return max(0, min(wanted_ms or WAIT_MS_MAX, WAIT_MS_MAX))  # a client may want a negative time
        remaining_ms = int(remaining_s * 1000)
        margin_ms = MARGIN_MS if wanted_ms else max(MARGIN_MS, request_timeout_ms // 2)
        if remaining_ms < SHORT_MS:
            return 0
        return max(0, min(wanted_ms or WAIT_MS_MAX, remaining_ms - margin_ms, WAIT_MS_MAX))


CLIENT_ID, LANGUAGE, VERSION = "x-mq-client-id", "x-mq-language", "x-mq-client-version"


def client_id_of(headers: HeaderTexts) -> str:
    """The id of the client that sent these headers. Errors: GrpcProxyError with CLIENT_ID_REQUIRED or BAD_REQUEST."""
    client_id = headers.get(CLIENT_ID, "").strip()
    if not client_id:
        raise GrpcProxyError(Code.CLIENT_ID_REQUIRED, "the header x-mq-client-id is missing; every call needs it")
    if len(client_id) > CLIENT_ID_BYTES_MAX:
        raise GrpcProxyError(
            Code.BAD_REQUEST, f"the client id has {len(client_id)} characters; give at most {CLIENT_ID_BYTES_MAX}"
        )
    return client_id


def is_client_id(text: str) -> bool:
    """Whether a header has a client id that `client_id_of` accepts."""
    return 0 < len(text.strip()) <= CLIENT_ID_BYTES_MAX


def caller_of(context: Context, headers: HeaderTexts) -> Caller:
    """Read the metadata of a call from its headers. Errors: as `client_id_of`."""
    return Caller(
        client_id_of(headers),
        headers.get(LANGUAGE, ""),
        headers.get(VERSION, ""),
        None,
        context,
        getattr(context, "waited_s", 0.0),  # only those of Ortoo's transports have it
    )


def peer_of(context: Context) -> str:
    """The address of a caller, host:port, from gRPC's form: `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000`."""
    return address_in(context.peer())


def address_in(peer: str) -> str:
    """The address in gRPC's name of a peer."""
    _, _, address = peer.partition(":")
    return address.replace("%5B", "[").replace("%5D", "]")
