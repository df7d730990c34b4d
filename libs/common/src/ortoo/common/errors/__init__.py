"""The public kinds of errors, named by the caller's next step. `status` translates them to gRPC's status and back.

* OrtooError: the base class of all
* Invalid: fix the request
* NotFound: create the missing object, or fix its name
* AlreadyExists: use another name, because the object exists with other properties than requested
* Conflict: change the state first
* Fenced: register again, because a newer process holds the right
* Overloaded: slow down, retry after the given delay
* Unavailable: retry, although the outcome may be unknown
* NotLeader, a subclass of Unavailable: nothing was stored, ask the enode's new leader
* OutOfRange: request the valid range
* DataLoss: repair the bytes, or skip them
* Forbidden: get the permission first
* Unsupported: upgrade this process
* Internal: a defect, report it

A new kind needs an ADR. The first line of a class's docstring is its default message.
"""

from typing import ClassVar, Final

NOT_ACCEPTED_FIELD: Final = "queue.enode"
"""The field of an Unavailable or Overloaded after which certainly nothing was stored, so that the messages may be sent
elsewhere. The enode was down, was stopping, or accepts no messages."""


class OrtooError(Exception):
    """An operation of Ortoo failed."""

    retriable: ClassVar[bool] = False

    def __init__(self, message: str = "", *, field: str = "", retry_after_ms: int = 0) -> None:
        """The message says what happened, what was expected and what to do. `field` names the request's wrong field."""
        self.message = message or (type(self).__doc__ or "").splitlines()[0]
        self.field = field
        self.retry_after_ms = retry_after_ms
        super().__init__(f"{field}: {self.message}" if field else self.message)


class Invalid(OrtooError):
    """The request is wrong and will stay wrong."""


class NotFound(OrtooError):
    """The requested object does not exist."""


class AlreadyExists(OrtooError):
    """The object exists already, with other properties than requested."""


class Conflict(OrtooError):
    """The state forbids this request."""


class Fenced(OrtooError):
    """A newer owner holds this lock or assignment."""


class Overloaded(OrtooError):
    """A limit is reached; retry later."""

    retriable = True


class Unavailable(OrtooError):
    """A required process is unavailable or too slow; retry."""

    retriable = True


class NotLeader(Unavailable):
    """Another replica of the enode is the leader, and nothing of the request was stored."""

    def __init__(
        self,
        message: str = "",
        *,
        leader_address: str = "",
        epoch: int = 0,
        field: str = NOT_ACCEPTED_FIELD,
        retry_after_ms: int = 0,
    ) -> None:
        """Carry the leader's host:port, empty if the leader is not known yet, and the highest known `epoch`."""
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
        """Carry the damaged offsets: `begin_offset`, and `end_offset` where reading can continue. 0 = not known."""
        super().__init__(message, field=field, retry_after_ms=retry_after_ms)
        self.begin_offset = begin_offset
        self.end_offset = end_offset


class Forbidden(OrtooError):
    """The caller may not do this."""


class Unsupported(OrtooError):
    """These bytes have a newer version than this process supports."""


class Internal(OrtooError):
    """A defect in Ortoo; please report it."""
