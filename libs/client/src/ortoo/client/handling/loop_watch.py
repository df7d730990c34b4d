"""A thread that notices a blocked event loop, and acts while the loop cannot."""

import sys
import threading
import traceback
from collections.abc import Callable

from ortoo.client import log_events
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock

CHECKS = 4
"""Checks of the loop in the time after which it counts as blocked."""
FRAMES = 4
"""Lines of the stack in the log: a library that waits is not the handler that calls it."""
_log = get_logger("consumer")


class LoopWatch:
    """Calls a function repeatedly, in a thread, while the event loop is blocked.

    Other tasks of the loop must call `beat` several times in `blocked_after_s`. A missing beat means that a handler
    blocks the loop.
    """

    def __init__(self, clock: Clock, blocked_after_s: float, while_blocked: Callable[[], None]) -> None:
        """`while_blocked` runs in the thread, and must not touch objects of the loop."""
        self._clock = clock
        self._blocked_after_s = blocked_after_s
        self._while_blocked = while_blocked
        self._beat_s = clock.monotonic_s()
        self._loop_thread_id = 0
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the thread; called on the loop."""
        self._loop_thread_id = threading.get_ident()
        self.beat()
        threading.Thread(target=self._watch, name="ortoo-loop-watch", daemon=True).start()

    def beat(self) -> None:
        """Record that the loop runs."""
        self._beat_s = self._clock.monotonic_s()

    def stop(self) -> None:
        """Let the thread end, without waiting for it."""
        self._stopped.set()

    def _watch(self) -> None:
        is_reported = False
        while not self._stopped.wait(self._blocked_after_s / CHECKS):
            blocked_s = self._clock.monotonic_s() - self._beat_s
            if blocked_s < self._blocked_after_s:
                is_reported = False
                continue
            if not is_reported:
                is_reported = True
                _log.emit(log_events.EVENT_LOOP_BLOCKED, seconds=round(blocked_s, 1), where=self._place())
            self._while_blocked()

    def _place(self) -> str:
        """The innermost lines that the thread of the loop executes."""
        frame = sys._current_frames().get(self._loop_thread_id)
        lines = [] if frame is None else reversed(traceback.extract_stack(frame, limit=FRAMES))
        return ", called by ".join(f"{line.filename}:{line.lineno} in {line.name}" for line in lines)
