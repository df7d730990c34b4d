"""Logs failed attempts without a line for each, so that an outage does not fill an application's log."""

from typing import Final

from ortoo.common.logs.log_event import RetryLogEvent
from ortoo.common.logs.logger import Logger
from ortoo.common.process.clock import Clock

RETRY_LOG_INTERVAL_S: Final = 60.0
"""Minimum interval between two lines of one event."""


class RetryLog:
    """Writes an event at its first failure and then once a minute, with the number of lines left out since."""

    def __init__(self, clock: Clock) -> None:
        """Without lines so far."""
        self._clock = clock
        self._next_at_s: dict[str, float] = {}
        self._omitted: dict[str, int] = {}

    def emit(self, log: Logger, retried: RetryLogEvent, /, **values: object) -> None:
        """Write a line of the event, or count it if the event was written less than a minute ago."""
        name, now_s = retried.event.name, self._clock.monotonic_s()
        if now_s < self._next_at_s.get(name, now_s):
            self._omitted[name] = self._omitted.get(name, 0) + 1
            return
        self._next_at_s[name] = now_s + RETRY_LOG_INTERVAL_S
        if omitted := self._omitted.pop(name, 0):
            values["omitted_lines"] = omitted
        log.emit(retried.event, **values)
