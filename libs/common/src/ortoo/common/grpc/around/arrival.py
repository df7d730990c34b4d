"""A call whose headers have come and whose request has not: it costs memory already, and it may be refused already."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar

from ortoo.common.process.memory_budget import MemoryShare

Metadata = Sequence[tuple[str, str | bytes]]


class Arrival:
    """A call from its headers to its request, and what is to be done when it is over."""

    __slots__ = ("_overs", "end", "ends_connection", "gives_many", "memory", "metadata", "path", "refused")

    def __init__(
        self, path: str, metadata: Metadata, *, gives_many: bool, end: Callable[[str], object] | None = None
    ) -> None:
        self.path = path
        self.metadata = metadata
        self.gives_many = gives_many
        """Whether its answers are a stream."""
        self.end = end
        """Ends the call for a reason; None once its request has come, or the call is over."""
        self.refused: Exception | None = None
        """Why its request is not received at all. The layers see this call with an empty request."""
        self.ends_connection = False
        """Whether the connection on which it came is to end, because no honest peer sends this."""
        self.memory: MemoryShare | None = None
        """What the call costs is drawn from it."""
        self._overs: list[Callable[[], object]] = []

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

    def came(self) -> None:
        """The request has come: the call is not ended any more for want of it, and its memory is its own cost."""
        self.end = None
        if self.memory is not None:
            self.memory.settle()

    def when_over(self, callback: Callable[[], object]) -> None:
        """Have a function called once gRPC holds nothing of the call any more."""
        self._overs.append(callback)

    def over(self, _: object = None) -> None:
        """GRPC holds nothing of the call any more. No reference stays that leads back to the call."""
        self.end = None
        overs, self._overs = self._overs, []
        for callback in overs:
            callback()


ARRIVAL: ContextVar[Arrival | None] = ContextVar("arrival", default=None)
"""Of the current call; None for a handler that is called without a server."""
