"""The way to the cluster: one of several snodes, and the next one when it is away."""

import os
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, Self, TypeVar

import grpc
from google.protobuf import json_format

from ortoo.client.core.closed import Closed
from ortoo.client.core.credentials import Credentials
from ortoo.common.cluster.addresses import is_address
from ortoo.common.cluster.process_name import process_name
from ortoo.common.errors import Conflict, Invalid, OrtooError, Unavailable
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.signature import signing
from ortoo.common.grpc.tls import SYSTEM, TlsClient
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff

Stub = TypeVar("Stub")
explained_to: ContextVar[Callable[[str], object] | None] = ContextVar("explained_to", default=None)
"""Who is told of every unary call, as the grpcurl command that does the same."""
TRIES_MAX = 5
CALL_TIMEOUT_S = 10.0


class Connection:
    """Calls to whichever snode answers. Any snode does for any call, because snodes keep nothing."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        clock: Clock,
        randomness: Randomness,
        client_id: str = "",
        room: str = "",
        credentials: Credentials | None = None,
        tls: TlsClient | None = None,
        call_timeout_s: float = CALL_TIMEOUT_S,
        tries_max: int = TRIES_MAX,
    ) -> None:
        """`addresses` are host:port of one or more snodes, tried in this order; without `client_id` one is made.

        Without `credentials` nothing is signed, without `tls` all is plain. `call` waits for an answer for
        `call_timeout_s` and asks at most `tries_max` times.
        """
        if not addresses:
            raise Invalid("no address; give host:port of a snode, such as localhost:8081", field="addresses")
        for address in addresses:
            if not is_address(address):
                raise Invalid(f"{address!r} is not host:port, such as localhost:8081", field="addresses")
        self.clock = clock
        self.randomness = randomness
        self.backoff = Backoff()
        self.room = room
        self.client_id = client_id or self.new_client_id()
        self._addresses = list(addresses)
        self._at = 0
        self._tls = tls
        self._channels = Channels(
            signing(credentials.access_key, credentials.secret_key, clock) if credentials is not None else None,
            tls.credentials() if tls is not None else None,
        )
        self._call_timeout_s = call_timeout_s
        self._tries_max = tries_max
        self.retries = 0
        """How many calls were tried again because nobody answered."""
        self._process_id = os.getpid()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *ended: Any) -> None:
        self._is_closed = True
        await self._channels.__aexit__(*ended)

    def new_client_id(self) -> str:
        """A name that no other client has, and that tells people host and process."""
        return f"{process_name()}-{self.randomness.id_text()[:6]}"

    @property
    def address(self) -> str:
        """The snode that is asked now."""
        return self._addresses[self._at]

    def channel(self) -> grpc.aio.Channel:
        """The channel to that snode. Errors: Closed; Conflict in a process forked from the one that connected."""
        self._check_usable()
        return self._channels.to(self.address)

    def _check_usable(self) -> None:
        if self._is_closed:
            raise Closed
        if os.getpid() != self._process_id:
            raise Conflict(
                "this client was connected before a fork, and gRPC's threads do not survive one; connect in the child, "
                "or start processes with the spawn method"
            )

    def failed(self, address: str) -> None:
        """The snode at `address` did not answer; ask the next one."""
        if address == self.address:
            self._at = (self._at + 1) % len(self._addresses)

    async def call_at(
        self,
        address: str,
        stub: Callable[[grpc.aio.Channel], Stub],
        method: str,
        request: Any,
        *,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Any:
        """One unary call to the snode at `address`, once. Errors: what it answered; Unavailable when it did not."""
        self._check_usable()
        if (explain := explained_to.get()) is not None:
            explain(as_grpcurl(address, stub.__name__, method, request, self._tls))
        with rpc_errors(address):
            return await getattr(stub(self._channels.to(address)), method)(request, timeout=timeout_s)

    async def stream(
        self, stub: Callable[[grpc.aio.Channel], Stub], method: str, request: Any
    ) -> AsyncGenerator[Any, None]:
        """The answers of one call that gives many; close it to end the call.

        Errors: what the server answered; Unavailable when it went away. Either way the next call asks another snode.
        """
        address = self.address
        call = getattr(stub(self.channel()), method)(request)
        try:
            with rpc_errors(address):
                async for answer in call:
                    yield answer
        except OrtooError:
            self.failed(address)
            raise
        finally:
            call.cancel()

    async def pause(self, attempt: int) -> None:
        """Wait before the next try, the longer the more failed: `attempt` counts from 0."""
        await self.clock.sleep(self.backoff.delay_s(attempt, self.randomness))

    async def keep(self, converse: Callable[[str], Awaitable[bool | None]]) -> None:
        """Converse with one snode after another, with a pause between, until it is all over.

        `converse` gets an address and says whether that snode worked until it broke; None = it is all over.
        """
        attempt, address = 0, self.address
        while (worked := await converse(address)) is not None:
            self.failed(address)
            attempt = 0 if worked else attempt + 1
            await self.pause(attempt)
            address = self.address

    async def call(
        self,
        stub: Callable[[grpc.aio.Channel], Stub],
        method: str,
        request: Any,
        *,
        timeout_s: float = 0,
    ) -> Any:
        """One unary call that may be repeated without harm; tried at several snodes while it is Unavailable.

        Errors: what the server answered; Unavailable when nobody did, naming the addresses.
        Each try waits for `timeout_s`; 0 = as the connection was made.
        """
        attempt = 0
        while True:
            address = self.address
            try:
                return await self.call_at(address, stub, method, request, timeout_s=timeout_s or self._call_timeout_s)
            except OrtooError as failure:
                error = failure
            attempt += 1
            if not error.retriable:
                raise error
            self.failed(address)
            if attempt >= self._tries_max:
                asked = " or ".join(self._addresses)
                raise Unavailable(f"no answer from {asked}: {error}; is a snode running there?") from error
            self.retries += 1
            await self.clock.sleep(max(error.retry_after_ms / 1000, self.backoff.delay_s(attempt, self.randomness)))


def as_grpcurl(address: str, stub: str, method: str, request: Any, tls: TlsClient | None = None) -> str:
    """The grpcurl command that makes the same call."""
    options = ["-plaintext"]
    if tls is not None:
        options = [] if tls.ca_file == SYSTEM else ["-cacert", shlex.quote(tls.ca_file)]
        if tls.certificate_file:
            options += ["-cert", shlex.quote(tls.certificate_file), "-key", shlex.quote(tls.key_file)]
    fields = json_format.MessageToJson(request, preserving_proto_field_name=True, indent=None)
    given = f"-d {shlex.quote(fields)} " if fields != "{}" else ""
    return f"{' '.join(['grpcurl', *options])} {given}{address} ortoo.v1.{stub.removesuffix('Stub')}/{method}"
