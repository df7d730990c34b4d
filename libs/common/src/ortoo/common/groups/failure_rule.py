"""The retry rule for messages whose processing failed; push, pull, pop and RocketMQ's clients all use it.

    rule = FailureRule(attempts_max=3, delays_ms=(1_000, 10_000))
    rule.after_attempt(1)                  # Retry(delay_ms=1000, attempt=1)
    rule.after_attempt(3)                  # Park("attempts", attempt=3)
    rule.after_attempt(3, counts=False)    # Retry(delay_ms=10000, attempt=2)

`attempts_max` counts attempts: with 3, a handler receives a message at most three times. A server applies the rule; the
consumer only reports a failure.
"""

from dataclasses import dataclass

ATTEMPTS_MAX = 16
"""The default number of attempts of a message."""
ATTEMPTS_LIMIT = 1_000
"""The maximum number of attempts that a group may set."""
REASON_ATTEMPTS = "attempts"
"""All attempts are used up."""
REASON_REQUESTED = "asked"
"""The consumer requested it."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The decision to redeliver a failed message."""

    delay_ms: int
    attempt: int
    """The number of counted attempts."""


@dataclass(frozen=True, slots=True)
class Park:
    """The decision to move a failed message to the group's dead letters."""

    reason: str
    attempt: int
    """The number of attempts."""


@dataclass(frozen=True, slots=True)
class FailureRule:
    """The retry rule of a group, or the retry rule that a consumer requests for one failed message."""

    attempts_max: int = ATTEMPTS_MAX
    """The maximum number of attempts; 0 = unlimited."""
    delays_ms: tuple[int, ...] = (0,)
    """The delay after the first, second, … attempt; the last delay stands for all later attempts."""

    def is_last(self, attempt: int) -> bool:
        """Whether attempt number `attempt` is the last one; the first attempt has number 1."""
        return 0 < self.attempts_max <= attempt

    def delay_ms(self, attempt: int) -> int:
        """The delay after attempt number `attempt` has failed; the first attempt has number 1."""
        return self.delays_ms[min(max(attempt, 1), len(self.delays_ms)) - 1] if self.delays_ms else 0

    def after_attempt(self, attempt: int, *, counts: bool = True, park: bool = False) -> Retry | Park:
        """Whether a message is redelivered or parked after attempt number `attempt` has failed; the first has number 1.

        `park`: the consumer asks to park the message now. `counts` False: the failed attempt is not counted.
        """
        if park:
            return Park(REASON_REQUESTED, attempt)
        if counts and self.is_last(attempt):
            return Park(REASON_ATTEMPTS, attempt)
        return Retry(self.delay_ms(attempt), attempt if counts else attempt - 1)
