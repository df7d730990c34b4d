"""A call whose headers have come and whose request has not: it costs memory already, and it may be refused already."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

Metadata = Sequence[tuple[str, str | bytes]]


class Arrival:
    """A call from its headers to its request, and what is to be done when it is over."""

    __slots__ = ("_overs", "end", "gives_many", "kept", "metadata", "path", "refused")

    def __init__(
        self, path: str, metadata: Metadata, *, gives_many: bool, end: Callable[[str], object] | None = None
    ) -> None:
        self.path = path
        self.metadata = metadata
        self.gives_many = gives_many
        """Whether its answers are a stream."""
        self.end = end
        """Ends the call for a reason; None once its request has come."""
        self.refused: Exception | None = None
        """Why its request is not received at all. The layers see this call with an empty request."""
        self.kept: dict[Any, Any] = {}
        """What layers want to know when the request has come."""
        self._overs: list[Callable[[], object]] = []

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
