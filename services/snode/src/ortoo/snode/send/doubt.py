"""What is known of messages that were tried to be stored more than once, or in several parts."""

from ortoo.common.errors import NOT_TAKEN_FIELD, OrtooError, Unavailable


class Doubt:
    """Whether one of several tries or parts may have been stored: then nobody may say that nothing was."""

    def __init__(self) -> None:
        """Nothing was tried yet."""
        self.is_open = False

    def tried(self, error: BaseException | None) -> None:
        """A try or a part ended so; None = it is stored."""
        self.is_open |= not isinstance(error, OrtooError) or _leaves_doubt(error)

    def told(self, error: OrtooError) -> OrtooError:
        """What who sent is told when the last one ended so: a refusal is about this one alone."""
        if self.is_open and not _leaves_doubt(error):
            return Unavailable(f"{error}; whether another try or part was stored is unknown", retry_after_ms=500)
        return error


def _leaves_doubt(error: OrtooError) -> bool:
    return isinstance(error, Unavailable) and error.field != NOT_TAKEN_FIELD
