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


def name_this_process(name: str) -> None:
    """Let this task, and those that it begins, be a process of this name."""
    _given.set(name)


@contextlib.contextmanager
def named_process(name: str) -> Iterator[None]:
    """As `name_this_process`, for the length of the block."""
    token = _given.set(name)
    try:
        yield
    finally:
        _given.reset(token)
