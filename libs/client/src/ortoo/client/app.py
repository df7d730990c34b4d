"""The client: one connection to the cluster, and the producers, consumers and calls made over it."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from ortoo.client.core.closed import ClientClosed, Openable
from ortoo.client.core.connection import Connection
from ortoo.client.core.credentials import addresses_from, credentials_from, effective_environment, tls_from
from ortoo.client.core.filters import Filter, TopicFilters, topic_filters
from ortoo.client.core.queues import Queue
from ortoo.client.produce.producer import Producer
from ortoo.client.produce.producer_settings import ProducerSettings
from ortoo.client.requests.requester import Requester
from ortoo.client.sessions.ping import ping
from ortoo.client.sessions.session import Session
from ortoo.common.cluster.addresses import check_proxy
from ortoo.common.errors import Conflict
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock, current_clock
from ortoo.common.process.randomness import Randomness, current_randomness
from ortoo.v1 import producer_pb2
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub

if TYPE_CHECKING:  # imported at the first use, because an application rarely uses all of them
    from ortoo.client.admin.admin import Admin
    from ortoo.client.core.received import ReceivedBatch, ReceivedMessage
    from ortoo.client.pop.consumer import PopConsumer
    from ortoo.client.pop.popped import PoppedMessage
    from ortoo.client.pop.settings import PopSettings
    from ortoo.client.produce.transactions import TransactionalProducer, TransactionChecker
    from ortoo.client.pull.consumer import PullConsumer
    from ortoo.client.pull.settings import PullSettings
    from ortoo.client.push.consumer import Consumer, ConsumerSettings
    from ortoo.client.tracing.telemetry import Telemetry

CERTIFICATE_INTERVAL_S = 10.0
"""Time between two looks at the certificate files."""


class Client(Openable):
    """A client: makes producers and consumers, and has the operator's calls as `admin`. Made by `connect`."""

    def __init__(self, make_connection: Callable[[], Connection], start_timeout_s: float = 0.0) -> None:
        """Applications get a client from `connect`."""
        self._make_connection = make_connection
        self._start_timeout_s = start_timeout_s
        self._connected: Connection | None = None
        self._requester: Requester
        self._session: Session
        self._open_parts = AsyncExitStack()
        self._opened_self: dict[Openable, None] = {}

    async def __aenter__(self) -> Self:
        if self._connected is not None:
            raise Conflict(
                "this client was opened before; make another one with `connect`. A client that was awaited needs no "
                "`async with`; call its `close` at the end"
            )
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(self._make_connection())
            self._requester = await stack.enter_async_context(Requester(connection))
            self._session = await stack.enter_async_context(Session(connection, self._requester))
            if connection.uses_tls:
                background = await stack.enter_async_context(Background("client"))
                read = connection.read_changed_certificates
                background.every("certificates", CERTIFICATE_INTERVAL_S, read, clock=connection.clock)
            if self._start_timeout_s > 0:
                await ping(connection, self._start_timeout_s)
            stack.push_async_callback(_close_all, connection.opened)
            self._connected, self._open_parts = connection, stack.pop_all()
        return self

    async def __aexit__(self, *ended: Any) -> bool | None:
        return await self._open_parts.__aexit__(*ended)

    @property
    def _connection(self) -> Connection:
        if self._connected is None:
            raise ClientClosed("this client is not open; use `async with connect()`, or `mq = await connect()`")
        return self._connected

    @property
    def _opened_objects(self) -> dict[Openable, None]:
        return self._opened_self

    async def ping(self, timeout_s: float = 3.0) -> float:
        """Wait until a snode serves; returns the seconds that its answer took.

        Errors: Unavailable after `timeout_s`.
        """
        return await ping(self._connection, timeout_s)

    @cached_property
    def admin(self) -> "Admin":
        """The operator's calls."""
        from ortoo.client.admin.admin import Admin

        return Admin(self._connection)

    def producer(self, topic: str, settings: ProducerSettings | None = None) -> Producer:
        """A producer for one topic; enter it with `async with`, or await it."""
        return Producer(self._connection, topic, settings or ProducerSettings(), self._requester)

    def transactional_producer(self, topic: str, group: str, checker: "TransactionChecker") -> "TransactionalProducer":
        """A producer whose messages wait for a verdict; enter it with `async with`.

        `checker` returns the verdict of a transaction of `group` if the verdict was lost. Any producer of the group may
        have begun that transaction.
        """
        from ortoo.client.produce.transactions import TransactionalProducer

        return TransactionalProducer(self._connection, topic, group, checker)

    def consumer(self, group: str, topics: TopicFilters, settings: "ConsumerSettings | None" = None) -> "Consumer":
        """A member of `group`; enter it with `async with`.

        `topics` names whole topics, or maps each topic to a tag expression such as "UA || DL" ("*" = all messages) or
        to an `Sql` condition.
        """
        from ortoo.client.push.consumer import Consumer, ConsumerSettings

        return Consumer(self._connection, group, topic_filters(topics), settings or ConsumerSettings())

    @property
    def late_replies(self) -> int:
        """Number of replies that came after their request had ended, and were dropped."""
        return self._requester.late_replies

    async def recall(self, recall_handle: str) -> None:
        """Cancel a delayed message by the handle in its receipt.

        After this call returns, the message is never delivered.

        Errors: NotFound when it was delivered or recalled before, Conflict while it is being delivered, Invalid.
        """
        request = producer_pb2.RecallMessageRequest(recall_handle=recall_handle)
        await self._connection.call(ProducerServiceStub, "RecallMessage", request)

    def pull_consumer(
        self, group: str, topics: TopicFilters | None = None, settings: "PullSettings | None" = None
    ) -> "PullConsumer":
        """A member of `group` that pulls from queues that it has locked; enter it with `async with`.

        `topics` has the same form as in `consumer`. Without topics, the consumer joins no group and pulls from the
        queues given to `assign`.
        """
        from ortoo.client.pull.consumer import PullConsumer
        from ortoo.client.pull.settings import PullSettings

        filters = topic_filters(topics) if topics is not None else {}
        return PullConsumer(self._connection, self._session, group, filters, settings or PullSettings())

    def pop_consumer(
        self, group: str, topic: str, filter: Filter = "*", settings: "PopSettings | None" = None
    ) -> "PopConsumer":
        """A worker of `group` that takes messages of `topic` one by one, each with a lease; enter it with `async with`.

        Any number of workers share the topic, independent of its number of queues. `filter` is a tag expression or an
        `Sql` condition. Messages that no member's filter selects count as consumed by the group.
        """
        from ortoo.client.pop.consumer import PopConsumer
        from ortoo.client.pop.settings import PopSettings

        return PopConsumer(self._connection, group, topic, filter, settings or PopSettings())

    def processing(self, *messages: "ReceivedMessage | PoppedMessage", group: str = "") -> AbstractContextManager[None]:
        """The span of the processing of received messages of one topic in a `with` block, for OpenTelemetry.

        Handlers of `run` and of `App` do not need it. Without OpenTelemetry the block has no effect.
        """
        telemetry = self._connection.telemetry
        return nullcontext() if telemetry is None or not messages else telemetry.processing(messages, group)

    def fetch(
        self, queue: Queue, from_offset: int = 0, to_offset: int = 0, *, follow: bool = False, filter: Filter = "*"
    ) -> "AsyncIterator[ReceivedBatch]":
        """Read batches of one queue outside any group: no lock is taken and no offset moves.

        `to_offset` is exclusive; 0 = the queue's end at the time of the call. With `follow` the iterator never ends.
        """
        from ortoo.client.read.fetch import fetch

        return fetch(self._connection, queue, from_offset, to_offset, follow=follow, filter=filter)


async def _close_all(opened: dict[Openable, None]) -> None:
    """Close objects, the newest first, also if closing one fails."""
    async with AsyncExitStack() as stack:
        for one in opened:
            stack.push_async_callback(one.close)


def connect(
    addresses: str | Sequence[str] = "",
    *,
    profile: str = "",
    client_id: str = "",
    zone: str = "",
    access_key: str = "",
    secret_key: str = "",
    tls_ca_file: str = "",
    tls_certificate_file: str = "",
    tls_key_file: str = "",
    start_timeout_s: float = 0.0,
    proxy: str | None = None,
    telemetry: bool = True,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
) -> Client:
    """Connect to a cluster through one or more snodes, host:port each. Calls fail over to the next address.

    Use the client in a block, `async with connect() as mq`. Without a block, write `mq = await connect()`, and
    `await mq.close()` at the end.

    Defaults come from a profile (see `ortoo profile`): `profile`, else the profile that ORTOO_PROFILE names, else the
    current profile unless ORTOO_ADDRESS is set. Without a profile the address is localhost:8081. If `addresses` are
    given, a profile is used only if `profile` is given too.
    `client_id` names this client in its groups; by default it is made of host and process. `zone` is the availability
    zone of this client, for allocation strategies that prefer queues of the same zone.
    `access_key` and `secret_key` sign every call (default: ORTOO_ACCESS_KEY and ORTOO_SECRET_KEY).
    `tls_ca_file` (PEM, or "system") holds the roots of the server certificates and turns TLS on.
    `tls_certificate_file` and `tls_key_file` are the client's certificate.
    Their defaults are ORTOO_TLS_CA_FILE, ORTOO_TLS_CERTIFICATE_FILE and ORTOO_TLS_KEY_FILE. Changed files are used
    within 10 s.
    With `start_timeout_s` the begin of the block waits until a snode serves, and raises Unavailable after this time. By
    default it does not wait.
    `proxy` is the URL of an HTTP proxy, such as http://proxy:3128; empty = no proxy. None = the proxy in the variables
    grpc_proxy, https_proxy or http_proxy, except for addresses of the same machine.
    If the application has set up OpenTelemetry, the client makes spans and metrics, unless `telemetry` is false.
    """
    check_proxy(proxy)

    def make_connection() -> Connection:
        environ = os.environ if addresses and not profile else effective_environment(profile)
        own_clock = clock or current_clock()
        return Connection(
            addresses_from(addresses, environ) if isinstance(addresses, str) else list(addresses),
            client_id=client_id,
            zone=zone,
            credentials=credentials_from(access_key, secret_key, environ),
            tls=tls_from(tls_ca_file, tls_certificate_file, tls_key_file, environ),
            telemetry=_telemetry(own_clock) if telemetry else None,
            proxy=proxy,
            clock=own_clock,
            randomness=randomness or current_randomness(),
        )

    return Client(make_connection, start_timeout_s)


def _telemetry(clock: Clock) -> "Telemetry | None":
    """The telemetry of a client; its module is imported only beside OpenTelemetry."""
    if not sys.modules.keys() & {"opentelemetry.trace", "opentelemetry.metrics"}:
        return None
    from ortoo.client.tracing.telemetry import telemetry_of_process

    return telemetry_of_process(clock)
