"""The standard files of a process: always open, and never blocking in a role.

Python itself writes to standard error: tracebacks, warnings, and lines of libraries whose logging is not set up.
Libraries in C write to it, too. In a role none of these writes, and no log line, may wait for a reader that hangs.
"""

import contextlib
import io
import os
import stat
import sys
from typing import TYPE_CHECKING

from ortoo.common.machine.line_writer import LineWriter
from ortoo.common.machine.printable import printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
EXIT_UNREAD = 141
"""The exit code of a command whose reader closed the pipe, as `| head` does; a shell shows it for SIGPIPE."""
_inherited: list[int] = []
"""The inherited standard error, where `capture_standard_error` opened it again."""


def open_missing_standard_files() -> None:
    """Open /dev/null for each closed standard file, because the next file or socket would get its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            _open_as(number, os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115  # it stays open, as the others do
    sys.stdout = sys.stdout or open(STANDARD_OUTPUT, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(STANDARD_ERROR, "w", closefd=False)  # noqa: SIM115


def capture_standard_error(writer: LineWriter) -> None:
    """Make writes to standard error non-blocking in this process, until it ends.

    First, `open_missing_standard_files` is called. Python's output goes through `writer`. For libraries in C, a pipe or
    a terminal is opened again as non-blocking, which does not affect other processes that use it. If standard error was
    closed, writes to it fail, also in child processes, so that every process counts its dropped lines.
    """
    open_missing_standard_files()
    mode = os.fstat(STANDARD_ERROR).st_mode
    with contextlib.suppress(OSError):  # no such device, or a pipe that has no reader or belongs to another user
        if sys.__stderr__ is None:
            _open_as(STANDARD_ERROR, "/dev/full", os.O_WRONLY)
        elif not _inherited and (stat.S_ISFIFO(mode) or os.isatty(STANDARD_ERROR)):
            as_it_was = os.dup(STANDARD_ERROR)
            _open_as(STANDARD_ERROR, f"/proc/self/fd/{as_it_was}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            _inherited.append(as_it_was)
    encoding = sys.stderr.encoding
    sys.stderr = io.TextIOWrapper(
        _Queued(writer),  # a raw file can serve as a buffer, as with `python -u`
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=True,
    )


def inherited_standard_error() -> int:
    """The standard error for child processes: the one that this process inherited."""
    return _inherited[0] if _inherited else STANDARD_ERROR


def _open_as(number: int, path: str, flags: int) -> None:
    """Open a file as the descriptor with this number, which child processes inherit."""
    opened = os.open(path, flags)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    os.set_inheritable(number, True)


def finish_output(code: int) -> int:
    """Write the rest of a command's output, and return its exit code: `code`, or a failure's code if the write fails.

    If the write fails, the rest is discarded. Otherwise Python would retry, and print an error, as the process ends.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        _open_as(STANDARD_OUTPUT, os.devnull, os.O_WRONLY)
        if isinstance(error, BrokenPipeError):
            return EXIT_UNREAD
        print_error(f"standard output: {error.strerror}")
        return code or 1
    return code


def print_error(message: str) -> None:
    """Print an error to standard error; an error that cannot be written is dropped."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"error: {printable(message)}\n")
        sys.stderr.flush()


class _Queued(io.RawIOBase):
    """Standard error as a file whose text a `LineWriter` writes."""

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return STANDARD_ERROR

    def isatty(self) -> bool:
        return os.isatty(STANDARD_ERROR)

    def write(self, data: "ReadableBuffer", /) -> int:
        text = bytes(data)
        self._writer.write_bytes(text)
        return len(text)
