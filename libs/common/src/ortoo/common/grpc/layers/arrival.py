"""A call whose headers have arrived before its request. Such a call already uses memory, and can already be refused.

The contexts of the transport h2 have the headers and the arrival of their call, which those of grpc.aio lack.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Protocol

from ortoo.common.grpc.errors import Context
from ortoo.common.process.memory_budget import MemoryShare

Metadata = Sequence[tuple[str, str | bytes]]
END_S_MAX = 5.0
"""Maximum time for which the stop of a server waits for handlers that it has cancelled."""


class HeaderTexts(Protocol):
    """The text values of a caller's metadata."""

    def get(self, name: str, default: str, /) -> str:
        """The value of a header, or `default`."""


class RepeatCaller(Protocol):
    """The caller of a call that may repeat an earlier one: a part of the call's context."""

    @property
    def headers(self) -> HeaderTexts:
        """The text values of the caller's metadata."""

    def peer(self) -> str:
        """The address of the caller, as gRPC writes it."""

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """The TLS properties of the caller."""


class Arrival:
    """The state of one call from the arrival of its headers, with callbacks for the end of the call."""

    end: Callable[[str], object] | None = None
    """Ends the call for a reason; None when the call's request has arrived or the call has ended."""
    refused: Exception | None = None
    """Why its request is not received. The layers see this call with an empty request."""
    has_request = False
    """Whether its whole request came with the headers, so that its layers are entered at once."""
    ends_connection = False
    """Whether the call's connection is to be closed, because no honest peer sends such a call."""
    memory: MemoryShare | None = None
    """The memory of the call is drawn from this share, once its request has arrived; it is closed when gRPC has
    released the call."""
    open_share: Callable[[], MemoryShare] | None = None
    """Opens a share for a request that arrives in parts; None = its memory is not counted."""
    peer = ""
    """The caller's address as gRPC writes it; empty while it is unknown."""
    call_bytes = 0
    """The memory of the call without its request."""
    request_bytes = 0
    """The memory of its request."""

    def __init__(self, kind: str, metadata: Metadata, *, is_observer: bool, gives_many: bool) -> None:
        self.kind = kind
        """The name of the method."""
        self.metadata = metadata
        self.is_observer = is_observer
        """Whether it is a call of health or reflection."""
        self.gives_many = gives_many
        """Whether its answers are a stream."""
        self.release_callbacks: list[Callable[[], object]] = []
        """Called when gRPC has released the call."""

    def on_request_received(self) -> None:
        """Note that the request has arrived, so that the call is no longer ended for a missing request."""
        self.end = None

    def raise_refusal(self) -> None:
        """Raise the error of a refused call; do nothing for a call that was not refused.

        The error is not kept, because its traceback refers to the call. Otherwise each refused call would be a
        reference cycle.
        """
        error, self.refused = self.refused, None
        if error is not None:
            try:
                raise error
            finally:
                del error

    def on_released(self, _: object = None) -> None:
        """Drop all references to the call, because gRPC has released it."""
        self.end = None
        if self.memory is not None:
            self.memory.close()
        callbacks, self.release_callbacks = self.release_callbacks, []  # they may refer to this arrival
        for callback in callbacks:
            callback()


class Arriving(Protocol):
    """Makes the arrival of a call."""

    def __call__(self, metadata: Metadata, end: Callable[[str], object], has_request: bool = False, /) -> Arrival:
        """`end` ends the call. With `has_request`, its layers are entered at once."""


ARRIVAL: ContextVar[Arrival | None] = ContextVar("arrival", default=None)
"""The arrival of the current call of grpc.aio."""


def headers_of(context: Context) -> Mapping[str, str]:
    """The text values of the caller's metadata. They may be shared with other calls."""
    known: Mapping[str, str] | None = getattr(context, "headers", None)
    if known is not None:
        return known
    return {str(key): value for key, value in context.invocation_metadata() or () if isinstance(value, str)}


def arrival_of(context: Context) -> Arrival | None:
    """The arrival of the current call; None for a handler that is called without a server."""
    known: Arrival | None = getattr(context, "arrival", None)
    return known or ARRIVAL.get()
