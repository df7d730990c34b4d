"""The outcome of messages that were sent more than once, or in several parts."""

from ortoo.common.errors import NOT_ACCEPTED_FIELD, OrtooError, Unavailable


class AmbiguousOutcome:
    """Whether one of several tries or parts may have been stored; then the outcome is ambiguous."""

    def __init__(self) -> None:
        """Start without a try."""
        self.is_ambiguous = False

    def add_attempt(self, error: BaseException | None) -> None:
        """Record the result of a try or part; None = it is stored."""
        self.is_ambiguous |= not isinstance(error, OrtooError) or _is_ambiguous(error)

    def error_for_sender(self, error: OrtooError) -> OrtooError:
        """The error for the sender when the last try failed. A refusal is certain only for that try."""
        if self.is_ambiguous and not _is_ambiguous(error):
            return Unavailable(f"{error}; whether another try or part was stored is unknown", retry_after_ms=500)
        return error


def _is_ambiguous(error: OrtooError) -> bool:
    return isinstance(error, Unavailable) and error.field != NOT_ACCEPTED_FIELD
