"""When a failed message is delivered again: by the number of its attempts, and by the exception of its handler."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from ortoo.client.core.handlers import PARK_LEVEL, RetryLater
from ortoo.common.errors import Invalid
from ortoo.common.groups.failure_rule import ATTEMPTS_MAX

Delays = Sequence[timedelta]
DelaysByError = Mapping[type[BaseException], Delays]


@dataclass(frozen=True, slots=True)
class RetryRules:
    """The retries of a handler's messages."""

    retries: Delays | DelaysByError | None
    """The delays of all retries, or those of each kind of exception. None = the group's retry policy."""
    jitter: float = 0.0
    """The largest random change of a delay, as a part of it."""

    def __post_init__(self) -> None:
        if not 0 <= self.jitter <= 1:
            raise Invalid(f"{self.jitter}; expected 0 (exact delays) to 1", field="jitter")

    @property
    def attempts_max(self) -> int:
        """The number of attempts that the group must allow; 0 = its own limit is enough."""
        if self.retries is None:
            return 0
        if not isinstance(self.retries, Mapping):
            return len(self.retries) + 1
        longest = max(map(len, self.retries.values()), default=0) + 1
        return longest if longest > ATTEMPTS_MAX else 0

    def failure_of(self, attempt: int, failure: BaseException, chance: float) -> BaseException:
        """The failure of an attempt, counted from 1, with its delay. `chance` is a random number from 0 to 1.

        A `RetryLater` of the handler, and an exception without a rule, are returned unchanged.
        """
        delays = self._delays_of(failure)
        if isinstance(failure, RetryLater) or delays is None:
            return failure
        if attempt <= len(delays):
            factor = 1 + self.jitter * (2 * chance - 1)
            retry = RetryLater(delay_ms=factor * (delays[attempt - 1] / timedelta(milliseconds=1)))
        elif isinstance(self.retries, Mapping):
            retry = RetryLater(PARK_LEVEL)
        else:
            return failure  # the last attempt of `attempts_max`
        retry.__cause__ = failure
        return retry

    def _delays_of(self, failure: BaseException) -> Delays | None:
        if not isinstance(self.retries, Mapping):
            return self.retries
        return next((delays for kind, delays in self.retries.items() if isinstance(failure, kind)), None)
