"""The standard files of a process: always open, and in a role never waited for.

Python itself writes to standard error: tracebacks, warnings, and lines of libraries whose logging is not set up. So do
libraries in C. In a role none of that may wait for a reader that hangs, as the role's own log lines do not.
"""

import contextlib
import io
import os
import stat
import sys
from typing import TYPE_CHECKING

from ortoo.common.machine.line_writer import LineWriter

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
EXIT_UNREAD = 141
"""The exit code of a command whose reader went away, as `| head` does: what a shell shows for SIGPIPE."""
_inherited: list[int] = []
"""Standard error as the process got it, where `own_standard_error` opened it again."""


def hold_standard_files() -> None:
    """Open /dev/null for each standard file that is closed: else the next file or socket would become that one."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            _open_as(number, os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115  # it stays open, as the others do
    sys.stdout = sys.stdout or open(STANDARD_OUTPUT, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(STANDARD_ERROR, "w", closefd=False)  # noqa: SIM115


def own_standard_error(writer: LineWriter) -> None:
    """Let nothing in this process wait for the reader of standard error, until the process ends.

    It begins with `hold_standard_files`. What Python code writes to it goes through `writer`. A pipe or a terminal is
    opened again as non-blocking, for what libraries in C write. That changes this process's own opening of it alone,
    not that of others who share it. Where it was closed, what is written to it is refused and not swallowed, in
    processes that this one starts as well: so all of them count their lines as dropped.
    """
    hold_standard_files()
    mode = os.fstat(STANDARD_ERROR).st_mode
    with contextlib.suppress(OSError):  # there is no such device, or it is a pipe without a reader or of another user
        if sys.__stderr__ is None:
            _open_as(STANDARD_ERROR, "/dev/full", os.O_WRONLY)
        elif not _inherited and (stat.S_ISFIFO(mode) or os.isatty(STANDARD_ERROR)):
            as_it_was = os.dup(STANDARD_ERROR)
            _open_as(STANDARD_ERROR, f"/proc/self/fd/{as_it_was}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            _inherited.append(as_it_was)
    encoding = sys.stderr.encoding
    sys.stderr = io.TextIOWrapper(
        _Queued(writer),  # a raw file does as a buffer, as with `python -u`
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=True,
    )


def childrens_standard_error() -> int:
    """The standard error to start processes with: as this process got it."""
    return _inherited[0] if _inherited else STANDARD_ERROR


def _open_as(number: int, path: str, flags: int) -> None:
    """Open a file as this descriptor, which children inherit."""
    opened = os.open(path, flags)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    os.set_inheritable(number, True)


def end_output(code: int) -> int:
    """Write the rest of what a command printed. Returns its exit code: another one than `code` if that fails.

    The rest is discarded then, or Python would try again, and complain, at the end of the process.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        _open_as(STANDARD_OUTPUT, os.devnull, os.O_WRONLY)
        if isinstance(error, BrokenPipeError):
            return EXIT_UNREAD
        complain(f"standard output: {error.strerror}")
        return code or 1
    return code


def complain(message: str) -> None:
    """Tell of an error on standard error, if that can be written."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"error: {message}\n")
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
