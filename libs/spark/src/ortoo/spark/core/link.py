"""Connections of a Python worker, one for each cluster and user, kept for the life of the process.

Spark reuses workers, so that the next task finds the connection open. A worker that is forked from a connected worker
opens a new connection, because gRPC's threads do not survive a fork. Spark also starts processes that only plan a read
or a write. The client is therefore imported with the first link.
"""

import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.common.machine.allocator import retain_freed_buffers
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.spark.core import log_events
from ortoo.spark.core.cluster_options import ClusterOptions
from ortoo.spark.core.frozen_modules import freeze_modules

if TYPE_CHECKING:
    from ortoo.client.admin.admin import Admin
    from ortoo.client.admin.topics import TopicCalls
    from ortoo.client.core.filters import Filter
    from ortoo.client.core.queues import Queue
    from ortoo.client.core.received import ReceivedBatch

T = TypeVar("T")
_RETRY_S = 0.5
_log = get_logger("spark")

_links: dict[tuple[int, ClusterOptions], "ClusterLink"] = {}


def link_to(cluster: ClusterOptions) -> "ClusterLink":
    """The link of this process to a cluster. The link connects at its first call."""
    key = (os.getpid(), cluster)
    link = _links.get(key)
    if link is None:
        for other in [other for other in _links if other[0] != key[0]]:
            del _links[other]
        retain_freed_buffers()
        link = _links[key] = ClusterLink(cluster)
        freeze_modules()
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
        from ortoo.client.blocking.loop_thread import LoopThread
        from ortoo.client.core.connection import Connection
        from ortoo.client.core.credentials import credentials_from, tls_from

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
                attempts_max=cluster.call_attempts or 1,
                retry_timeout_s=cluster.unavailable_timeout_ms / 1000,
            )
        self.unavailable_timeout_s = cluster.unavailable_timeout_ms / 1000

    @cached_property
    def topics(self) -> "TopicCalls":
        """The calls about topics."""
        from ortoo.client.admin.topics import TopicCalls

        return TopicCalls(self.connection)

    @cached_property
    def admin(self) -> "Admin":
        """All calls of operators. Importing them costs a planner much more than those about topics alone."""
        from ortoo.client.admin.admin import Admin

        return Admin(self.connection)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the link's event loop, and wait for its result."""
        return self._thread.run(coroutine)

    def enter_context(self, manager: AbstractAsyncContextManager[T]) -> Any:
        """Enter an async context manager on the link's event loop, for the duration of a `with` statement."""
        return self._thread.enter_context(manager)

    def call(self, stub: Callable[..., Any], method: str, request: Any) -> Any:
        """Make one unary call, which must be idempotent. Errors: those of the server, or Unavailable."""
        return self.run(self.connection.call(stub, method, request))

    def when_available(self, attempt: Callable[[], T]) -> T:
        """Repeat `attempt` while its error is retriable, for `unavailableTimeoutMs`. Errors: those of `attempt`.

        An answer about several queues may lack those of an enode that is down. Such an answer is a success of the call,
        so that the call itself does not wait.
        """
        deadline_s = self.clock.monotonic_s() + self.unavailable_timeout_s
        while True:
            try:
                return attempt()
            except OrtooError as error:
                if not error.retriable or self.clock.monotonic_s() + _RETRY_S > deadline_s:
                    raise
                self.connection.retry_log.emit(_log, log_events.CLUSTER_UNAVAILABLE_RETRYING, error)
            self.sleep(_RETRY_S)

    def fetch(
        self,
        queue: "Queue",
        from_offset: int,
        to_offset: int,
        columns: Sequence[str] = (),
        filter: "Filter" = "*",
        on_progress: Callable[[int, int], object] | None = None,
    ) -> Iterator["ReceivedBatch"]:
        """Read the batches of one queue that match `filter`; each batch has at least these columns.

        Errors and `on_progress`: as in `ortoo.client.read.fetch`.
        """
        from ortoo.client.read.fetch import fetch

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
