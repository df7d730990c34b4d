"""A session that is reopened at the next snode after every break, until it is closed."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic

import grpc

from ortoo.client import log_events
from ortoo.client.core.bidi_stream import BidiStream, Request, Response
from ortoo.client.core.connection import Connection
from ortoo.common.errors import OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.v1 import consumer_pb2

CLOSE_TIMEOUT_S = 5.0
_log = get_logger("session")


class ReconnectingSession(ABC, Generic[Request, Response]):
    """A session with a snode that is opened again after a break. Subclasses define the session's messages."""

    def __init__(
        self,
        connection: Connection,
        open_stream: Callable[[grpc.aio.Channel], Any],
        make_request: Callable[..., Request],
    ) -> None:
        """`open_stream` opens a stream.

        `make_request` makes a request with one event; the argument's name is the event's protobuf field. Nothing is
        sent yet.
        """
        self.address = ""
        """The snode of the session."""
        self._connection = connection
        self._open_stream = open_stream
        self._make_request = make_request
        self._stream: BidiStream[Request, Response] | None = None
        self._is_opened = False
        """Whether the snode has opened the session, so that a break does not count as a failure of that snode."""
        self._was_opened = False
        """Whether a snode has ever opened a session of this consumer."""
        self._is_closing = False
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Keep a session open until it is closed or permanently refused."""
        await self._connection.run_with_failover(self._run_stream)
        self._ended.set()

    async def _run_stream(self, address: str) -> bool | None:
        if self._is_closing:
            return None
        if not await self._prepare_opening():
            return False
        self.address, self._is_opened = address, False
        stream = self._stream = BidiStream(
            address,
            self._on_response,
            lambda: self._make_request(heartbeat=consumer_pb2.Heartbeat()),
            clock=self._connection.clock,
        )
        self._send_opening()
        try:
            await stream.run(self._open_stream(self._connection.channel()))
        except OrtooError as error:
            if not error.retriable and self._on_refused(error):
                return None
            self._connection.retry_log.emit(_log, log_events.SESSION_BROKEN_RECONNECTING, error)
        finally:
            self._stream = None
            self._on_stream_end()
        return None if self._is_closing else self._is_opened

    def _send(self, **event: Any) -> None:
        """Send an event. Without a session the event is dropped, so `_send_opening` must send it again."""
        if self._stream is not None:
            self._stream.send(self._make_request(**event))

    def _on_session_event(self, response: Any) -> bool:
        """Handle the events `opened` and `closed` of any session; returns whether the session is closed."""
        kind = response.WhichOneof("event")
        if kind == "opened":
            self._is_opened = self._was_opened = True
            if self._stream is not None:
                self._stream.set_heartbeat_interval(max(0.1, response.opened.heartbeat_interval_ms / 1000))
        elif kind == "closed":
            _log.emit(log_events.SESSION_CLOSED_BY_SNODE, reason=response.closed.message)
        return bool(kind == "closed")

    async def _close_session(self) -> None:
        """Close the session; gracefully if the snode answers within CLOSE_TIMEOUT_S."""
        self._is_closing = True
        if self._stream is None or self._ended.is_set():
            return
        self._send(close=consumer_pb2.CloseSession())
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._ended.wait()
        except TimeoutError:
            _log.emit(log_events.SESSION_CLOSE_TIMEOUT, address=self.address)

    async def _prepare_opening(self) -> bool:
        """Fetch the data that `_send_opening` needs; returns whether that succeeded."""
        return True

    @abstractmethod
    def _send_opening(self) -> None:
        """Send the first events of a session."""

    @abstractmethod
    def _on_response(self, response: Response) -> bool:
        """Handle a response; returns whether the response was the last."""

    @abstractmethod
    def _on_refused(self, error: OrtooError) -> bool:
        """Handle a refusal of the session; returns whether the refusal is permanent."""

    @abstractmethod
    def _on_stream_end(self) -> None:
        """Drop the state of a session that has ended."""
