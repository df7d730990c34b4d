"""What is known of a message that was tried to be stored more than once."""

from ortoo.common.errors import NOT_TAKEN_FIELD, NotFound, OrtooError, Overloaded, Unavailable


class Doubt:
    """Whether one of several tries may have been stored: then nobody may say that nothing was taken."""

    def __init__(self) -> None:
        """Nothing was tried yet."""
        self.is_open = False

    def tried(self, error: OrtooError) -> None:
        """A try ended so."""
        self.is_open |= isinstance(error, Unavailable) and error.field != NOT_TAKEN_FIELD

    def told(self, error: OrtooError) -> OrtooError:
        """What who sent is told when the last try ended so."""
        is_about_this_try = error.field == NOT_TAKEN_FIELD or isinstance(error, NotFound | Overloaded)
        if self.is_open and is_about_this_try:
            return Unavailable(f"{error}; whether an earlier try was stored is unknown", retry_after_ms=500)
        return error
