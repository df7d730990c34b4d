"""The requests of a client that wait for replies."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Self

from ortoo.client import log_events
from ortoo.client.core.closed import ClientClosed
from ortoo.client.core.connection import Connection
from ortoo.client.requests.replies import RequestTimeout
from ortoo.common.errors import Forbidden, Invalid, OrtooError, Overloaded, Unavailable
from ortoo.common.groups.requests import TIMEOUT_MS_MAX, RequestOptions
from ortoo.common.grpc.messages import write
from ortoo.common.grpc.request_batcher import RequestBatcher
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.records.batch import BATCH_BYTES, encoded_bytes_bound
from ortoo.common.records.message import Message, message_of
from ortoo.common.records.message_fields import exclusive_columns
from ortoo.common.records.sealed_batch import RECORDS_BYTES_MAX
from ortoo.v1 import producer_pb2, record_pb2
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub

DEDUP_ID = "DEDUP_ID"
"""The property with the application's dedup id."""
REQUESTS_MAX = 10_000
"""Largest number of requests of one client that wait for a reply."""
ENDED_MAX = 10_000
"""Largest number of ended requests that the client remembers, to recognize late and repeated replies."""
SINGLE_PUBLISHES_MAX = 4
"""Largest number of calls in flight that store one request each; further requests share calls."""
PUBLISHES_MAX = 4
"""Largest number of calls in flight that store requests of one topic; further requests share the next call."""
SPECIAL_PUBLISHES_MAX = 64
"""Largest number of calls in flight for requests of one topic that are not plain. Each has a call of its own.

Otherwise a snode could store the call in part, and a retry for one request would store the others again.
"""
PUBLISH_BYTES_MAX = RECORDS_BYTES_MAX - BATCH_BYTES
MESSAGE_BYTES_MIN = PUBLISH_BYTES_MAX // 256
"""The least size with which a message counts, so that a call has at most 256 messages."""
_log = get_logger("requester")


class ReplyOutcome(Enum):
    """How the requester treated a reply."""

    ACCEPTED = "accepted"
    """It is the first reply, or the requester has accepted an earlier one."""
    LATE = "late"
    """The request had ended without a reply."""


@dataclass(slots=True, eq=False)
class _Waiting:
    topic: str
    is_stored: bool = False
    """Whether a snode has confirmed that the request is stored."""
    reply: "asyncio.Future[Message]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def has_reply(self) -> bool:
        """Whether a reply has come."""
        return self.reply.done() and not self.has_failed

    @property
    def has_failed(self) -> bool:
        """Whether the request ends without a reply."""
        return self.reply.cancelled() or (self.reply.done() and self.reply.exception() is not None)


@dataclass(frozen=True, slots=True)
class _Sent:
    """One request on its way to a snode."""

    message: Message
    options: RequestOptions
    deadline_s: float

    @property
    def size_bytes(self) -> int:
        """The size with which the request counts in a call, at least that of the stored message."""
        properties = {**self.message.properties, **self.options.properties()}
        return max(MESSAGE_BYTES_MIN, encoded_bytes_bound(self.message.replace(properties=properties)))

    @property
    def is_plain(self) -> bool:
        """Whether the message has no field that determines its queue or the time of its delivery."""
        rare = self.message.rare
        return rare.message_group is None and rare.priority is None and not exclusive_columns(rare)


class Requester:
    """Sends requests and matches replies to them. The client's session registers it, and receives the replies."""

    def __init__(self, connection: Connection) -> None:
        """Nothing is sent before the first request."""
        self.secret = connection.randomness.key_bytes()
        """Only the holder of the secret can register for the replies of this client."""
        self.on_needed: Callable[[], None] = lambda: None
        """Called when a request needs a registration for replies, and none has succeeded or is in progress."""
        self.late_replies = 0
        """Number of replies that came after their request had ended, and were dropped."""
        self._connection = connection
        self._reply_to: asyncio.Future[str] | None = None
        self._background = Background("requests")
        self._batchers: dict[tuple[str, bool], RequestBatcher[_Sent, None]] = {}
        """By topic, for plain requests and for others."""
        self._single_publishes = 0
        self._waiting: dict[str, _Waiting] = {}
        self._ended: OrderedDict[str, ReplyOutcome | None] = OrderedDict()
        """The outcome of further replies by correlation id; None = the next reply is late and not counted yet."""
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await self._background.__aenter__()
        return self

    async def __aexit__(self, *ended: Any) -> None:
        self.close()
        await self._background.__aexit__(*ended)

    @property
    def is_needed(self) -> bool:
        """Whether a session must register this client for replies."""
        return self._reply_to is not None

    async def request(self, topic: str, message: Message | bytes, timeout_s: float) -> Message:
        """Send a request and wait for its reply. Errors: see `Producer.request`."""
        if not 0.001 <= timeout_s <= TIMEOUT_MS_MAX / 1000:
            limit_s = TIMEOUT_MS_MAX // 1000
            raise Invalid(f"{timeout_s:g} s; expected 0.001 to {limit_s} s", field="timeout_s")
        if self._is_closed:
            raise ClientClosed
        if len(self._waiting) >= REQUESTS_MAX:
            raise Overloaded(
                f"{REQUESTS_MAX} requests of this client wait for replies; wait for some of them first",
                field="message",
                retry_after_ms=100,
            )
        plain = message_of(message)
        plain.check()
        if DEDUP_ID in plain.properties:
            raise Invalid(f"property {DEDUP_ID} is reserved; a request cannot have a dedup id", field="properties")
        correlation_id = self._connection.randomness.uuid_text().replace("-", "")
        waiting = self._waiting[correlation_id] = _Waiting(topic)
        try:
            async with asyncio.timeout(timeout_s):
                await self._send(topic, plain, correlation_id, timeout_s)
                waiting.is_stored = True
                return await waiting.reply
        except (TimeoutError, OrtooError) as error:
            if waiting.has_reply:  # before the answer to the send, or in the last moment; its sender counts on it
                return waiting.reply.result()
            if isinstance(error, TimeoutError):
                raise RequestTimeout(topic, correlation_id, timeout_s, is_stored=waiting.is_stored) from None
            raise
        finally:
            del self._waiting[correlation_id]
            self._end(correlation_id, is_answered=waiting.has_reply)

    async def _send(self, topic: str, message: Message, correlation_id: str, timeout_s: float) -> None:
        """Store the request. After a lost answer it is sent again, and may then be stored twice."""
        deadline_s = self._connection.clock.monotonic_s() + timeout_s
        options = RequestOptions(correlation_id, await self._register(), round(timeout_s * 1000))
        try:
            await self._store(topic, _Sent(message, options, deadline_s))
        except Unavailable as error:
            if self._is_closed:
                raise _closed_error() from None
            raise RequestTimeout(topic, correlation_id, timeout_s, is_stored=False, reason=str(error)) from error

    async def _store(self, topic: str, sent: _Sent) -> None:
        """Store a request at once. If many calls are in flight, plain requests share a call."""
        if self._single_publishes < SINGLE_PUBLISHES_MAX:
            self._single_publishes += 1
            try:
                await self._publish(topic, [sent])
            finally:
                self._single_publishes -= 1
            return
        key = topic, sent.is_plain
        if key not in self._batchers:
            self._batchers[key] = RequestBatcher(
                partial(self._publish, topic),
                self._background,
                size_max=PUBLISH_BYTES_MAX if sent.is_plain else 0,
                size_of=lambda one: one.size_bytes,
                in_flight_max=PUBLISHES_MAX if sent.is_plain else SPECIAL_PUBLISHES_MAX,
            )
        batcher = self._batchers[key]
        try:
            await batcher.request(sent)
        finally:
            if batcher.is_idle and self._batchers.get(key) is batcher:
                del self._batchers[key]

    async def _publish(self, topic: str, sent: Sequence[_Sent]) -> list[None]:
        """Store requests of one topic, without those that have ended meanwhile."""
        waiting = [one for one in sent if one.options.correlation_id in self._waiting]
        if waiting:
            request = producer_pb2.PublishRequest(
                topic=topic,
                messages=[write(record_pb2.Message, one.message) for one in waiting],
                requests=[write(producer_pb2.RequestOptions, one.options) for one in waiting],
            )
            deadline_s = max(one.deadline_s for one in waiting)
            await self._connection.call(ProducerServiceStub, "Publish", request, deadline_s=deadline_s)
        return [None] * len(sent)

    async def _register(self) -> str:
        """Wait until a snode has registered this client for replies; returns the address for replies."""
        if self._reply_to is None:
            self._reply_to = asyncio.get_running_loop().create_future()
            self.on_needed()
        return await asyncio.shield(self._reply_to)

    def on_registered(self, reply_to: str) -> None:
        """Take the address for replies. A later session gets the same address."""
        if self._reply_to is not None and not self._reply_to.done():
            self._reply_to.set_result(reply_to)

    def on_refused(self, error: OrtooError) -> None:
        """Fail the requests that wait for the first registration; the next request registers again.

        A refusal after the first registration has no effect, because the next session registers again.
        """
        if self._reply_to is not None and not self._reply_to.done():
            self._reply_to.set_exception(error)
            self._reply_to.exception()  # marks it as seen, as perhaps no request waits for it
            self._reply_to = None

    def deliver(self, topic: str, correlation_id: str, reply: Message) -> ReplyOutcome:
        """Give a reply to its request. Errors: Forbidden if the request went to another topic."""
        waiting = self._waiting.get(correlation_id)
        if waiting is not None and waiting.has_failed:
            waiting = None
        if waiting is not None and waiting.topic != topic:
            raise Forbidden(
                "the request was sent to another topic; name the topic of the request in the reply. The replier needs "
                "the permission to consume it",
                field="topic",
            )
        if waiting is not None:
            if not waiting.reply.done():
                waiting.reply.set_result(reply)
            return ReplyOutcome.ACCEPTED
        outcome = self._ended.get(correlation_id)
        if outcome is None:
            outcome = ReplyOutcome.LATE
            self._remember(correlation_id, outcome)
            self.late_replies += 1
            _log.emit(log_events.LATE_REPLY_DROPPED, topic=topic, correlation_id=correlation_id)
        return outcome

    def close(self) -> None:
        """Fail the requests that wait, because the client closes."""
        self._is_closed = True
        for waiting in self._waiting.values():
            if not waiting.reply.done():
                waiting.reply.set_exception(_closed_error())
                waiting.reply.exception()  # it is not unreported if the request fails before it waits for the reply
        for batcher in self._batchers.values():
            batcher.close()
        self.on_refused(_closed_error())

    def _end(self, correlation_id: str, *, is_answered: bool) -> None:
        if correlation_id not in self._ended:
            self._remember(correlation_id, ReplyOutcome.ACCEPTED if is_answered else None)

    def _remember(self, correlation_id: str, outcome: ReplyOutcome | None) -> None:
        self._ended[correlation_id] = outcome
        while len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)


def _closed_error() -> ClientClosed:
    return ClientClosed("the client was closed before the reply came")
