"""Which process this is, in names that people read: its machine and its number."""

import contextlib
import os
import socket
from collections.abc import Iterator
from contextvars import ContextVar

_given: ContextVar[str] = ContextVar("process_name", default="")


def process_name() -> str:
    """The machine's name and the process's number, `db7-4711`; of a simulated process, the name it was given."""
    return _given.get() or f"{socket.gethostname()}-{os.getpid()}"


@contextlib.contextmanager
def named_process(name: str) -> Iterator[None]:
    """Let this task in the block, and those that it begins there, be a process of this name."""
    token = _given.set(name)
    try:
        yield
    finally:
        _given.reset(token)
