"""The part of a server that its connections use."""

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from ortoo.common.grpc.h2.headers import RepeatedRequests
from ortoo.common.grpc.h2.limits import WireLimits
from ortoo.common.grpc.h2.shared.looks import Looks
from ortoo.common.grpc.h2.shared.turns import Turns
from ortoo.common.process.clock import Clock

if TYPE_CHECKING:
    from ortoo.common.grpc.h2.connection import H2Connection


class Owner(Protocol):
    """The server of a connection."""

    clock: Clock
    limits: WireLimits
    repeated: RepeatedRequests
    looks: Looks
    deadlines: Looks
    """The looks at calls when their deadlines pass."""
    turns: Turns

    def find_method(self, path: str) -> Any:
        """The method of a path; None if there is none."""

    def add_connection(self, connection: "H2Connection") -> bool:
        """Whether the server takes the connection."""

    def remove_connection(self, connection: "H2Connection") -> None:
        """The connection has ended."""

    def on_broken(self, reason: str, peer: str) -> None:
        """A connection was broken because of the behaviour of its peer."""

    def on_handler_left(self, task: "asyncio.Task[Any]") -> None:
        """A call ends before its handler, whose task this is."""

    def on_call_ended(self) -> None:
        """A call of a connection has ended."""

    def on_invalid_headers(self, peer: str) -> None:
        """Headers of a peer have violated HTTP/2, so that libnghttp2 reset their stream and made no call."""
