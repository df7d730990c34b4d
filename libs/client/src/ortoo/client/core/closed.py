"""Errors for the use of an object after its end."""

from ortoo.common.errors import Conflict


class ClientClosed(Conflict):
    """A client or producer was used after its end; make a new client or producer."""

    def __init__(self, message: str = "this client is closed; connect again") -> None:
        """`message` names the closed object; by default it is the whole client."""
        super().__init__(message)


class ConsumerClosed(Conflict):
    """A consumer was used after it left its group, or before it was entered with `async with`."""
