"""A call whose headers have come and whose request has not: it costs memory already, and it may be refused already."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar

from ortoo.common.process.memory_budget import MemoryShare

Metadata = Sequence[tuple[str, str | bytes]]


class Arrival:
    """A call from its headers to its request, and what is to be done when it is over. One is made for each call."""

    end: Callable[[str], object] | None = None
    """Ends the call for a reason; None once its request has come, or the call is over."""
    refused: Exception | None = None
    """Why its request is not received at all. The layers see this call with an empty request."""
    ends_connection = False
    """Whether the connection on which it came is to end, because no honest peer sends this."""
    memory: MemoryShare | None = None
    """What the call costs is drawn from it; it is closed when gRPC holds nothing of the call any more."""
    when_over: Callable[[], object] | None = None
    """What else is done then."""

    def __init__(self, kind: str, metadata: Metadata, *, is_observer: bool, gives_many: bool) -> None:
        self.kind = kind
        """The name of the method."""
        self.metadata = metadata
        self.is_observer = is_observer
        """Whether it is a call of health or reflection."""
        self.gives_many = gives_many
        """Whether its answers are a stream."""

    def came(self) -> None:
        """The request has come: the call is not ended any more for want of it, and its memory is its own cost."""
        self.end = None
        if self.memory is not None:
            self.memory.settle()

    def raise_refusal(self) -> None:
        """Raise why the call was refused, if it was.

        Nothing keeps the error: its traceback leads back to the call, and each refused call would be garbage.
        """
        error, self.refused = self.refused, None
        if error is not None:
            try:
                raise error
            finally:
                del error

    def over(self, _: object = None) -> None:
        """GRPC holds nothing of the call any more. No reference stays that leads back to the call."""
        self.end = None
        if self.memory is not None:
            self.memory.close()
        if self.when_over is not None:
            self.when_over()


ARRIVAL: ContextVar[Arrival | None] = ContextVar("arrival", default=None)
"""Of the current call of grpc.aio; None for a handler that is called without a server."""
