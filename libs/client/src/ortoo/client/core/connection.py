"""The connection to the cluster: to one of several snodes, with failover to the next snode."""

import asyncio
import os
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc

from ortoo.client import log_events
from ortoo.client.core.closed import ClientClosed, Openable, check_loop, check_not_forked, used_before_fork
from ortoo.client.core.credentials import Credentials
from ortoo.common.cluster.addresses import is_address, proxy_variable
from ortoo.common.cluster.process_name import process_name
from ortoo.common.errors import Invalid, OrtooError, Unavailable
from ortoo.common.errors.status import error_of_rpc, is_reported, rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.signature import signing
from ortoo.common.grpc.tls import SYSTEM, TlsClient
from ortoo.common.logs.logger import get_logger
from ortoo.common.machine import forks
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff, RetryLog

if TYPE_CHECKING:
    from ortoo.client.tracing.telemetry import Telemetry

Stub = TypeVar("Stub")
call_explainer: ContextVar[Callable[[str], object] | None] = ContextVar("call_explainer", default=None)
"""Gets the equivalent grpcurl command of each unary call and each call with a stream of answers."""
CALL_ATTEMPTS_MAX = 5
CALL_TIMEOUT_S = 10.0
_log = get_logger("connection")


class Connection:
    """Sends calls to the first snode that answers. Snodes are stateless, so that any snode serves any call."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        clock: Clock,
        randomness: Randomness,
        client_id: str = "",
        zone: str = "",
        credentials: Credentials | None = None,
        tls: TlsClient | None = None,
        telemetry: "Telemetry | None" = None,
        proxy: str | None = None,
        call_timeout_s: float = CALL_TIMEOUT_S,
        attempts_max: int = CALL_ATTEMPTS_MAX,
        retry_timeout_s: float = 0,
    ) -> None:
        """`addresses` are host:port of snodes, tried in this order. Without a `client_id`, an id is generated.

        `telemetry` makes spans and metrics of messages.
        `proxy` is the URL of a proxy, empty = none, None = as the environment says.
        Calls are not signed without `credentials`, and not encrypted without `tls`. `call` waits `call_timeout_s` for
        each answer and makes at most `attempts_max` attempts. With `retry_timeout_s`, it retries for this time instead.

        Errors: Invalid, or Conflict in a forked child of a process that has connected before.
        """
        check_not_forked()
        if not addresses:
            raise Invalid("no address; expected host:port of a snode, such as localhost:8081", field="addresses")
        for address in addresses:
            if not is_address(address):
                raise Invalid(f"{address!r} is not host:port, such as localhost:8081", field="addresses")
        self.clock = clock
        self.randomness = randomness
        self.telemetry = telemetry
        self.backoff = Backoff()
        self.retry_log = RetryLog(clock)
        self.zone = zone
        self.client_id = client_id or self.new_client_id()
        self._addresses = list(addresses)
        self._address_index = 0
        self._tls = tls
        self._channels = Channels(
            signing(credentials.access_key, credentials.secret_key, clock) if credentials is not None else None,
            tls.reloading() if tls is not None else None,
            proxy=proxy,
        )
        self._proxy = proxy
        self._call_timeout_s = call_timeout_s
        self._attempts_max = attempts_max
        self._retry_timeout_s = retry_timeout_s
        self.opened: dict[Openable, None] = {}
        """Objects that were opened by `open` and are not closed, the oldest first."""
        self.retries = 0
        """Number of calls that were retried because no answer came."""
        self.forks = forks.count
        """The count of forks of the process that may use it."""
        self._is_closed = False
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop that may use it; None before and after that."""

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        return self

    async def __aexit__(self, *ended: Any) -> None:
        self._is_closed, self.loop = True, None
        self.opened.clear()
        await self._channels.__aexit__(*ended)

    def new_client_id(self) -> str:
        """A unique client id that contains host and process."""
        return f"{process_name()}-{self.randomness.id_text()[:6]}"

    @property
    def address(self) -> str:
        """The snode that calls go to now."""
        return self._addresses[self._address_index]

    def channel(self) -> grpc.aio.Channel:
        """The channel to `address`.

        Errors: ClientClosed, or Conflict in a forked process or on another loop.
        """
        self.check_usable()
        return self._channels.channel_to(self.address)

    def check_usable(self) -> None:
        """Refuse calls after the end, in a forked process, or on another loop. Errors: ClientClosed, Conflict."""
        # Each enqueued message is checked. Asking asyncio for the running loop would take a system call: until
        # Python 3.12 it compares process ids. A loop of asyncio knows the thread in which it runs. Others are asked.
        if getattr(self.loop, "_thread_id", None) != get_ident() or self.forks != forks.count:
            self._check_reasons()

    def _check_reasons(self) -> None:
        if self._is_closed:
            raise ClientClosed
        if self.forks != forks.count:
            raise used_before_fork()
        check_loop(self.loop)

    @property
    def uses_tls(self) -> bool:
        """Whether calls are encrypted."""
        return self._tls is not None

    async def read_changed_certificates(self) -> None:
        """Use certificate files that have changed for new calls; see `Channels.renew`."""
        await self._channels.renew()

    def mark_failed(self, address: str) -> None:
        """Move to the next snode, because the one at `address` did not answer."""
        if address == self.address:
            self._address_index = (self._address_index + 1) % len(self._addresses)

    async def call_at(
        self,
        address: str,
        stub: Callable[[grpc.aio.Channel], Stub],
        method: str,
        request: Any,
        *,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Any:
        """One unary call to the snode at `address`, without retry. Errors: those of the snode, or Unavailable."""
        self.check_usable()
        if (explain := call_explainer.get()) is not None:
            explain(grpcurl_command(address, stub.__name__, method, request, self._tls))
        with rpc_errors(address):
            return await getattr(stub(self._channels.channel_to(address)), method)(request, timeout=timeout_s)

    def call_from_thread(self, method: str, request: Any, answer: type[Any], *, timeout_s: float) -> Any:
        """Send one unary call over a separate connection, from another thread while the event loop is blocked.

        `method` is the path of the call, such as "/ortoo.v1.ConsumerService/ChangeInvisible", and `answer` the class of
        the response. Errors: those of the snode, or Unavailable. After an error, the next call uses another snode.
        """
        address = self.address
        try:
            return self._channels.call_blocking(address, method, request, answer, timeout_s=timeout_s)
        except grpc.RpcError as error:
            self.mark_failed(address)
            failed: Any = error  # it has the same methods as an error of grpc.aio
            raise error_of_rpc(failed, address) from error

    async def stream(
        self, stub: Callable[[grpc.aio.Channel], Stub], method: str, request: Any
    ) -> AsyncGenerator[Any, None]:
        """The answers of one server-streaming call; close the generator to end the call.

        Errors: those of the server, or Unavailable when the stream breaks. After any error, the next call uses another
        snode.
        """
        address = self.address
        if (explain := call_explainer.get()) is not None:
            explain(grpcurl_command(address, stub.__name__, method, request, self._tls))
        call = getattr(stub(self.channel()), method)(request)
        try:
            with rpc_errors(address):
                async for answer in call:
                    yield answer
        except OrtooError:
            self.mark_failed(address)
            raise
        finally:
            call.cancel()

    async def back_off(self, attempt: int) -> None:
        """Wait before the next attempt, longer after each failure; `attempt` counts from 0."""
        await self.clock.sleep(self.backoff.delay_s(attempt, self.randomness))

    async def run_with_failover(self, run_stream: Callable[[str], Awaitable[bool | None]]) -> None:
        """Call `run_stream` with one snode after another, with a pause between, until it returns None.

        `run_stream` gets the address of a snode. It returns whether that snode worked before the stream broke; None =
        finished.
        """
        attempt, address = 0, self.address
        while (was_working := await run_stream(address)) is not None:
            self.mark_failed(address)
            attempt = 0 if was_working else attempt + 1
            await self.back_off(attempt)
            address = self.address

    async def call(
        self,
        stub: Callable[[grpc.aio.Channel], Stub],
        method: str,
        request: Any,
        *,
        timeout_s: float = 0,
        deadline_s: float | None = None,
    ) -> Any:
        """One idempotent unary call; retried at the next snode while the error is retriable.

        Errors: those of the server, or Unavailable with the addresses when no snode answered.
        Each attempt waits for `timeout_s`; 0 = `call_timeout_s` of the connection. `deadline_s` is a
        monotonic time: no further attempt begins after it, and the number of attempts is not limited.
        """
        attempt = 0
        if deadline_s is None and self._retry_timeout_s:
            deadline_s = self.clock.monotonic_s() + self._retry_timeout_s
        while True:
            address = self.address
            try:
                return await self.call_at(address, stub, method, request, timeout_s=timeout_s or self._call_timeout_s)
            except OrtooError as failure:
                error = failure
            attempt += 1
            if not error.retriable:
                raise error
            self.mark_failed(address)
            delay_s = max(error.retry_after_ms / 1000, self.backoff.delay_s(attempt, self.randomness))
            if (
                attempt >= self._attempts_max
                if deadline_s is None
                else self.clock.monotonic_s() + delay_s >= deadline_s
            ):
                if is_reported(error):  # a snode answered, so its address is not the problem
                    raise Unavailable(str(error)) from error
                all_addresses = " or ".join(self._addresses)
                remedy = "check that a snode is running there"
                if self._proxy:
                    remedy += ", and that the proxy given to `connect` reaches it"
                elif self._proxy is None and (variable := proxy_variable(address, os.environ)):
                    remedy += f". The connection uses the proxy of the environment variable {variable}: unset it, or "
                    remedy += "add the host to no_proxy, if the proxy does not reach the snode"
                raise Unavailable(f"no answer from {all_addresses} ({error}); {remedy}") from error
            self.retries += 1
            if self._retry_timeout_s:  # a wait that is long enough for a person to wonder
                self.retry_log.emit(_log, log_events.CALL_FAILED_RETRYING, error)
            await self.clock.sleep(delay_s)


def grpcurl_command(address: str, stub: str, method: str, request: Any, tls: TlsClient | None = None) -> str:
    """The equivalent grpcurl command of a call."""
    from google.protobuf import json_format  # only for operators that ask for commands

    options = ["-plaintext"]
    if tls is not None:
        options = [] if tls.ca_file == SYSTEM else ["-cacert", shlex.quote(tls.ca_file)]
        if tls.certificate_file:
            options += ["-cert", shlex.quote(tls.certificate_file), "-key", shlex.quote(tls.key_file)]
    fields = json_format.MessageToJson(request, preserving_proto_field_name=True, indent=None)
    data_option = f"-d {shlex.quote(fields)} " if fields != "{}" else ""
    return f"{' '.join(['grpcurl', *options])} {data_option}{address} ortoo.v1.{stub.removesuffix('Stub')}/{method}"
