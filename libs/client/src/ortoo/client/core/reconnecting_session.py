"""A session that is reopened at the next snode after every break, until it is left."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic

import grpc

from ortoo.client import log_events
from ortoo.client.core.connection import Connection
from ortoo.client.core.bidi_stream import Conversation, Request, Response
from ortoo.common.errors import OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.v1 import consumer_pb2

LEAVE_TIMEOUT_S = 5.0
_log = get_logger("session")


class KeptSession(ABC, Generic[Request, Response]):
    """One session after another. Subclasses define the messages: those of `_begin` first, then others."""

    def __init__(
        self, connection: Connection, call: Callable[[grpc.aio.Channel], Any], request: Callable[..., Request]
    ) -> None:
        """`call` opens a stream; `request` makes the request of an event by its name. Nothing is sent yet."""
        self.address = ""
        """The snode of the session."""
        self._connection = connection
        self._call = call
        self._request = request
        self._conversation: Conversation[Request, Response] | None = None
        self._is_opened = False
        """Whether the snode has opened the session, so that a break does not count as a failure of that snode."""
        self._is_leaving = False
        self._left = asyncio.Event()

    async def keep(self) -> None:
        """Keep a session open until it is left or refused permanently."""
        await self._connection.keep(self._converse)
        self._left.set()

    async def _converse(self, address: str) -> bool | None:
        if self._is_leaving:
            return None
        if not await self._prepare():
            return False
        self.address, self._is_opened = address, False
        conversation = self._conversation = Conversation(
            address,
            self._hear,
            lambda: self._request(heartbeat=consumer_pb2.Heartbeat()),
            clock=self._connection.clock,
        )
        self._begin()
        try:
            await conversation.run(self._call(self._connection.channel()))
        except OrtooError as error:
            if not error.retriable and self._refused(error):
                return None
            _log.emit(log_events.SESSION_BROKEN_RECONNECTING, reason=str(error))
        finally:
            self._conversation = None
            self._forget()
        return None if self._is_leaving else self._is_opened

    def _say(self, **event: Any) -> None:
        """Send an event. Without a session it is dropped, so `_begin` must send it again."""
        if self._conversation is not None:
            self._conversation.say(self._request(**event))

    def _heard(self, response: Any) -> bool:
        """Handle the events of all kinds of sessions, opened and closed; returns whether the session is closed."""
        kind = response.WhichOneof("event")
        if kind == "opened":
            self._is_opened = True
            if self._conversation is not None:
                self._conversation.beat_every(max(0.1, response.opened.heartbeat_interval_ms / 1000))
        elif kind == "closed":
            _log.emit(log_events.SESSION_CLOSED_BY_SNODE, reason=response.closed.message)
        return bool(kind == "closed")

    async def _leave(self) -> None:
        """Close the session; gracefully if the snode answers within LEAVE_TIMEOUT_S."""
        self._is_leaving = True
        if self._conversation is None or self._left.is_set():
            return
        self._say(close=consumer_pb2.CloseSession())
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._left.wait()
        except TimeoutError:
            _log.emit(log_events.SESSION_CLOSE_TIMEOUT, address=self.address)

    async def _prepare(self) -> bool:
        """Fetch the data that `_begin` needs; returns whether that succeeded."""
        return True

    @abstractmethod
    def _begin(self) -> None:
        """Send the first events of a session."""

    @abstractmethod
    def _hear(self, response: Response) -> bool:
        """Handle a response; returns whether it was the last."""

    @abstractmethod
    def _refused(self, error: OrtooError) -> bool:
        """Handle a refusal of the session; returns whether it is permanent."""

    @abstractmethod
    def _forget(self) -> None:
        """Drop the state of a session that has ended."""
