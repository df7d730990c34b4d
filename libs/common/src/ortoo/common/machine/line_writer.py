"""Writes lines to a descriptor in a thread, so that the caller neither waits for the reader nor fails with it."""

import atexit
import os
import select
import threading
from collections import deque
from collections.abc import Callable

WAITING_BYTES_MAX = 1 << 20
"""The size of the queue."""
LINE_OVERHEAD_BYTES = 64
"""The memory of a waiting line beside its text."""
WRITE_BYTES_MAX = 4096
"""PIPE_BUF of Linux: up to this size, one write(2) to a pipe is never mixed with writes of other processes."""
EXIT_FLUSH_S = 1.0
"""Maximum time for which the end of the process waits for lines that are not written yet."""


class LineWriter:
    """A bounded queue of lines and the thread that writes them.

    `write` may be called by any thread, by finalizers, and after a fork by the child. A line is dropped and counted
    when the queue is full or the descriptor refuses it. A full queue takes lines again once half of it is written. Gaps
    are therefore few and large. The thread is a daemon that starts with the first line. While the thread hangs in
    write(2), all other threads continue. The end of the process waits at most EXIT_FLUSH_S for the thread.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        on_gap: Callable[[int], object] = lambda _: None,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
    ) -> None:
        """Write to `descriptor`. After dropped lines, the thread calls `on_gap` with their number."""
        self._descriptor = descriptor
        self._on_gap = on_gap
        self._waiting_bytes_max = waiting_bytes_max
        self._is_torn = False
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Begin with an empty queue and without a thread. Also called in the child of a fork, which has one thread."""
        self.dropped = 0
        """The number of lines that were dropped since the process began."""
        self._lock = threading.RLock()  # a finalizer that logs may run within any call of this thread
        self._wake = threading.Lock()
        self._wake.acquire()
        self._waiting: deque[bytes | threading.Event] = deque()
        self._waiting_bytes = 0
        self._gap = 0
        self._has_thread = False
        self._is_idle = False

    def write(self, line: str) -> None:
        """Queue a line, given without its line end, or drop it."""
        self.write_bytes(line.encode(errors="backslashreplace") + b"\n")

    def write_bytes(self, data: bytes) -> None:
        """Queue one or more whole lines, which are written or dropped together."""
        size = len(data) + LINE_OVERHEAD_BYTES
        with self._lock:
            if not self._started():
                self.dropped += 1
            elif self._gap or (self._waiting_bytes and self._waiting_bytes + size > self._waiting_bytes_max):
                self.dropped += 1
                self._gap += 1
            else:
                self._waiting_bytes += size
                self._add(data)

    def drop(self) -> None:
        """Count a line that could not be formatted."""
        with self._lock:
            self.dropped += 1

    def flush(self, timeout_s: float = EXIT_FLUSH_S) -> bool:
        """Wait until all lines queued until now are written or dropped; returns False after `timeout_s`."""
        with self._lock:
            if not self._waiting_bytes:
                return True
            done = threading.Event()
            self._add(done)
        return done.wait(timeout_s)

    def _add(self, item: bytes | threading.Event) -> None:
        self._waiting.append(item)
        if self._is_idle:
            self._is_idle = False
            self._wake.release()

    def _started(self) -> bool:
        """Start the thread if there is none; returns whether it runs.

        The system can refuse a new thread, and so does Python while the process ends.
        """
        if not self._has_thread:
            self._has_thread = True
            try:
                threading.Thread(target=self._run, name="line writer", daemon=True).start()
            except RuntimeError:
                self._has_thread = False
                return False
            atexit.register(self.flush)
        return True

    def _run(self) -> None:
        gap = 0
        while True:
            lines = self._take()
            is_written = self._write(b"".join(lines))
            with self._lock:
                self._waiting_bytes -= sum(map(len, lines)) + len(lines) * LINE_OVERHEAD_BYTES
                if not is_written:
                    self.dropped += len(lines)
                    gap += len(lines)
                if self._waiting_bytes <= self._waiting_bytes_max // 2:
                    gap, self._gap = gap + self._gap, 0
            if gap and is_written:
                self._on_gap(gap)
                gap = 0

    def _take(self) -> list[bytes]:
        """Wait for lines, and take as many as fit into one write."""
        lines: list[bytes] = []
        size = 0
        while True:
            with self._lock:
                while self._waiting:
                    item = self._waiting[0]
                    if isinstance(item, bytes):
                        size += len(item)
                        if lines and size > WRITE_BYTES_MAX:
                            return lines
                        lines.append(item)
                    elif lines:
                        return lines
                    else:
                        item.set()
                    self._waiting.popleft()
                if lines:
                    return lines
                self._is_idle = True
            self._wake.acquire()

    def _write(self, data: bytes) -> bool:
        """Write all of `data`, without a time limit; False if the descriptor refuses the data."""
        rest = memoryview(b"\n" + data if self._is_torn else data)
        while rest:
            try:
                count = os.write(self._descriptor, rest)
            except BlockingIOError:  # another process made it non-blocking, or it is our own
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()
            except OSError:
                return False
            else:
                rest = rest[count:]
                self._is_torn = bool(rest)
        return True
