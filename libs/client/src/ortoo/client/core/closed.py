"""What is said to whoever uses something after its end."""

from ortoo.common.errors import Conflict


class Closed(Conflict):
    """A client or producer was used after its end; make a new one."""

    def __init__(self, message: str = "this client is closed; connect again") -> None:
        """`message` says what is closed, unless that is the whole client."""
        super().__init__(message)


class Left(Conflict):
    """A consumer was used outside its group: it was left, or not entered with `async with` yet."""
