"""Retries: the delays between attempts, and a limit on their log lines during an outage."""

from dataclasses import dataclass
from typing import Final

from ortoo.common.logs.log_event import RetryLogEvent
from ortoo.common.logs.logger import Logger
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays that double from `first_s` to `max_s`, each spread by up to `jitter` of itself to both sides."""

    first_s: float = 0.05
    max_s: float = 5.0
    factor: float = 2.0
    jitter: float = 0.2

    def delay_s(self, attempt: int, randomness: Randomness) -> float:
        """The delay after the failed `attempt`, which is 0 for the first one."""
        plain = min(self.max_s, self.first_s * self.factor ** min(attempt, 64))
        return plain * randomness.uniform(1 - self.jitter, 1 + self.jitter)


RETRY_LOG_INTERVAL_S: Final = 60.0
"""Minimum interval between two lines of one event."""


class RetryLog:
    """Writes an event at its first failure and then once a minute, with the number of lines left out since."""

    def __init__(self, clock: Clock) -> None:
        """No event was written yet."""
        self._clock = clock
        self._next_at_s: dict[str, float] = {}
        self._omitted: dict[str, int] = {}

    def emit(self, log: Logger, retried: RetryLogEvent, reason: object, /, **values: object) -> None:
        """Write a line of the event, or count it if the event was written less than a minute ago.

        `reason` is the error of the attempt.
        """
        name, now_s = retried.event.name, self._clock.monotonic_s()
        if now_s < self._next_at_s.get(name, now_s):
            self._omitted[name] = self._omitted.get(name, 0) + 1
            return
        self._next_at_s[name] = now_s + RETRY_LOG_INTERVAL_S
        if omitted := self._omitted.pop(name, 0):
            values["omitted_lines"] = omitted
        log.emit(retried.event, **values, reason=str(reason))
