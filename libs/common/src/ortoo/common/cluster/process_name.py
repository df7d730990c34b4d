"""A readable name of this process: its machine and its process id."""

import contextlib
import os
import socket
from collections.abc import Iterator
from contextvars import ContextVar

_given: ContextVar[str] = ContextVar("process_name", default="")


def process_name() -> str:
    """The machine's name and the process id, such as `db7-4711`, or the name given by `using_process_name`."""
    return _given.get() or f"{socket.gethostname()}-{os.getpid()}"


@contextlib.contextmanager
def using_process_name(name: str) -> Iterator[None]:
    """Make `process_name` return `name` in the block, and in tasks that are started there."""
    token = _given.set(name)
    try:
        yield
    finally:
        _given.reset(token)
