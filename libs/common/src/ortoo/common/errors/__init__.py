"""Errors: the public kinds, named by what the caller does next, and their place in gRPC's status and back.

OrtooError
├── Invalid         fix the request
├── NotFound        create it, or fix the name
├── AlreadyExists   it is there already, otherwise than asked for
├── Conflict        change the state first
├── Fenced          somebody newer holds the right: register again
├── Overloaded      slow down, retry after the delay given
├── Unavailable     retry; the outcome may be unknown
│   └── Moved       nothing was stored: ask the enode's new leader
├── OutOfRange      ask for the valid range
├── DataLoss        repair the bytes, or skip them
├── Forbidden       get the right first
├── Unsupported     upgrade this process
└── Internal        a defect: report it

A new kind needs an ADR. The first line of a class's docstring is its default message.
"""

from typing import ClassVar, Final

NOT_TAKEN_FIELD: Final = "queue.enode"
"""The field of an Unavailable or Overloaded which says that the enode was away, about to stop or takes no messages at
all, so that nothing was stored for certain: the same may be sent elsewhere."""


class OrtooError(Exception):
    """Something went wrong."""

    retriable: ClassVar[bool] = False

    def __init__(self, message: str = "", *, field: str = "", retry_after_ms: int = 0) -> None:
        """Say what happened, what was expected and what to do; name the request's `field` if one is wrong."""
        self.message = message or (type(self).__doc__ or "").splitlines()[0]
        self.field = field
        self.retry_after_ms = retry_after_ms
        super().__init__(f"{field}: {self.message}" if field else self.message)


class Invalid(OrtooError):
    """The request is wrong and will stay wrong."""


class NotFound(OrtooError):
    """What the request names does not exist."""


class AlreadyExists(OrtooError):
    """It exists already, otherwise than asked for."""


class Conflict(OrtooError):
    """The state forbids this request."""


class Fenced(OrtooError):
    """Somebody newer holds this right."""


class Overloaded(OrtooError):
    """A limit is reached; retry later."""

    retriable = True


class Unavailable(OrtooError):
    """A needed part is away or was too slow; retry."""

    retriable = True


class Moved(Unavailable):
    """Another member of the enode leads, and nothing of the request was stored."""

    def __init__(
        self,
        message: str = "",
        *,
        leader_address: str = "",
        epoch: int = 0,
        field: str = NOT_TAKEN_FIELD,
        retry_after_ms: int = 0,
    ) -> None:
        """Carry host:port of the leader, empty when not known yet, and the highest `epoch` that was heard of."""
        super().__init__(message, field=field, retry_after_ms=retry_after_ms)
        self.leader_address = leader_address
        self.epoch = epoch


class OutOfRange(OrtooError):
    """The offset is not stored."""

    def __init__(
        self, message: str = "", *, begin_offset: int = 0, end_offset: int = 0, field: str = "", retry_after_ms: int = 0
    ) -> None:
        """Carry the range that is stored: `begin_offset` to `end_offset`, exclusive."""
        super().__init__(message, field=field, retry_after_ms=retry_after_ms)
        self.begin_offset = begin_offset
        self.end_offset = end_offset


class DataLoss(OrtooError):
    """Stored bytes are damaged."""

    def __init__(
        self, message: str = "", *, begin_offset: int = 0, end_offset: int = 0, field: str = "", retry_after_ms: int = 0
    ) -> None:
        """Carry the damaged offsets: from `begin_offset` to `end_offset`, where reading can go on; 0 = not known."""
        super().__init__(message, field=field, retry_after_ms=retry_after_ms)
        self.begin_offset = begin_offset
        self.end_offset = end_offset


class Forbidden(OrtooError):
    """The caller may not do this."""


class Unsupported(OrtooError):
    """These bytes are of a newer version than this process knows."""


class Internal(OrtooError):
    """A defect in Ortoo; please report it."""
