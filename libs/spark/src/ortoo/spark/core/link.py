"""Connections of a Python worker, one for each cluster and user, kept for the life of the process.

Spark reuses workers, so that the next task finds the connection open. A worker that is forked from a connected worker
opens a new connection, because gRPC's threads do not survive a fork.
"""

import gc
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ortoo.client import Filter, Queue, ReceivedBatch
from ortoo.client.admin.admin import Admin
from ortoo.client.blocking.loop_thread import LoopThread
from ortoo.client.core.connection import Connection
from ortoo.client.core.credentials import credentials_from, tls_from
from ortoo.client.read.fetch import fetch
from ortoo.common.cluster.addresses import is_address
from ortoo.common.errors import Invalid
from ortoo.common.grpc.tls import SYSTEM, TlsClient
from ortoo.common.machine.allocator import retain_freed_buffers
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.spark.core.options import OptionReader

T = TypeVar("T")

TLS_OPTIONS: Final = ("tlsCaFile", "tlsCertificateFile", "tlsKeyFile")
CLUSTER_OPTIONS: Final = ("address", "accessKey", "secretKey", "tls", *TLS_OPTIONS, "callTimeoutMs", "callAttempts")
"""The options for the connection, the same for reads and writes."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Addresses, user and TLS files of a cluster. Each combination of values has its own connection."""

    addresses: tuple[str, ...]
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    tls: TlsClient | None = None
    """The files have the same paths on the driver and on every executor."""
    call_timeout_ms: int = 10_000
    call_attempts: int = 5

    @classmethod
    def of(cls, reader: OptionReader) -> "ClusterOptions":
        """Parse the options.

        Errors: Invalid for a missing or malformed address, or if only one of `accessKey` and `secretKey` is given.
        """
        addresses = reader.names("address") or tuple(os.environ.get("ORTOO_ADDRESS", "").replace(",", " ").split())
        if not addresses:
            raise Invalid('missing address; expected .option("address", "host:8081") or ORTOO_ADDRESS', field="address")
        for address in addresses:
            if not is_address(address):
                raise Invalid(f"{address!r} is not host:port, such as localhost:8081", field="address")
        if len(incomplete := reader.given("accessKey", "secretKey")) == 1:
            raise Invalid("expected both accessKey and secretKey, or neither", field=incomplete[0])
        files = [reader.text(name) for name in TLS_OPTIONS]
        speaks_tls = reader.flag("tls", any(files))
        for name in TLS_OPTIONS:
            reader.require(name, speaks_tls, "tls=true")
        return cls(
            addresses, reader.text("accessKey"), reader.text("secretKey"),
            TlsClient(files[0] or SYSTEM, *files[1:]) if speaks_tls else None,
            reader.duration_ms("callTimeoutMs", 10_000), reader.number("callAttempts", 5, low=1),
        )  # fmt: skip


_links: dict[tuple[int, ClusterOptions], "ClusterLink"] = {}


def link_to(cluster: ClusterOptions) -> "ClusterLink":
    """The link of this process to a cluster. The link connects at its first call."""
    key = (os.getpid(), cluster)
    link = _links.get(key)
    if link is None:
        for other in [other for other in _links if other[0] != key[0]]:
            del _links[other]
        retain_freed_buffers()
        gc.freeze()  # excludes the modules from the garbage collection that Spark runs after each task
        link = _links[key] = ClusterLink(cluster)
    return link


@contextmanager
def _named_as_options() -> Iterator[None]:
    """Rename the field of an error from `tls_ca_file` to `tlsCaFile`."""
    try:
        yield
    except Invalid as error:
        first, *others = error.field.split("_")
        raise Invalid(error.message, field=first + "".join(map(str.title, others))) from None


class ClusterLink:
    """A connection on a separate thread. Calls block, and may come from any other thread."""

    def __init__(self, cluster: ClusterOptions) -> None:
        """Connects at the first call. Errors: Invalid for a TLS file."""
        self.clock: Clock = SystemClock()
        self._thread = LoopThread()
        with _named_as_options():
            self.connection = Connection(
                cluster.addresses,
                clock=self.clock,
                randomness=Randomness(),
                credentials=credentials_from(cluster.access_key, cluster.secret_key),
                tls=cluster.tls or tls_from("", "", ""),
                call_timeout_s=cluster.call_timeout_ms / 1000,
                attempts_max=cluster.call_attempts,
            )
        self.admin = Admin(self.connection)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the link's event loop, and wait for its result."""
        return self._thread.run(coroutine)

    def enter_context(self, manager: AbstractAsyncContextManager[T]) -> Any:
        """Enter an async context manager on the link's event loop, for the duration of a `with` statement."""
        return self._thread.enter_context(manager)

    def call(self, stub: Callable[..., Any], method: str, request: Any) -> Any:
        """Make one unary call, which must be idempotent. Errors: those of the server, or Unavailable."""
        return self.run(self.connection.call(stub, method, request))

    def fetch(
        self,
        queue: Queue,
        from_offset: int,
        to_offset: int,
        columns: Sequence[str] = (),
        filter: Filter = "*",
        on_progress: Callable[[int, int], object] | None = None,
    ) -> Iterator[ReceivedBatch]:
        """Read the batches of one queue that match `filter`; each batch has at least these columns.

        Errors and `on_progress`: as in `ortoo.client.read.fetch`.
        """
        source = fetch(
            self.connection,
            queue,
            from_offset,
            to_offset,
            columns=columns,
            filter=filter,
            coalesce=True,
            on_progress=on_progress,
        )
        return self._thread.iterate(source, prefetch=True)

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        self.run(self.clock.sleep(seconds))
