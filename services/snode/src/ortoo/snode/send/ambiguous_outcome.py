"""The outcome of messages that were sent more than once, or in several parts."""

from ortoo.common.errors import NOT_ACCEPTED_FIELD, OrtooError, Unavailable


class AmbiguousOutcome:
    """Tracks whether any try to store messages, or any part of them, may have been stored despite an error."""

    def __init__(self) -> None:
        """Start without a try."""
        self.is_ambiguous = False

    def add_attempt(self, error: BaseException | None) -> None:
        """Record the error of a try or of a part; None = it was stored."""
        self.is_ambiguous |= not isinstance(error, OrtooError) or _is_ambiguous(error)

    def error_for_sender(self, error: OrtooError) -> OrtooError:
        """The error for the sender after the last try failed with `error`.

        It says that the outcome is unknown if an earlier try or another part may have been stored.
        """
        if self.is_ambiguous and not _is_ambiguous(error):
            return Unavailable(
                f"{error}; it is unknown whether an earlier try or another part was stored", retry_after_ms=500
            )
        return error


def _is_ambiguous(error: OrtooError) -> bool:
    return isinstance(error, Unavailable) and error.field != NOT_ACCEPTED_FIELD
