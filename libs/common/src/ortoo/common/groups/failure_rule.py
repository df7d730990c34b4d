"""What becomes of a message that could not be processed: one rule for push, pull, pop and RocketMQ's clients.

    rule = FailureRule(attempts_max=3, delays_ms=(1_000, 10_000))
    rule.after(1)                  # Again(delay_ms=1000, attempt=1)
    rule.after(3)                  # Park("attempts", attempt=3)
    rule.after(3, counts=False)    # Again(delay_ms=10000, attempt=2)

`attempts_max` counts tries: with 3 a handler sees a message three times and no fourth time. The rule is asked where
the tries are counted; who processes messages says only that one failed, and obeys.
"""

from dataclasses import dataclass

ATTEMPTS_MAX = 16
"""How often a message is tried when its group does not say."""
ATTEMPTS_LIMIT = 1_000
"""What a group may say at most."""
REASON_ATTEMPTS = "attempts"
"""All tries are used up."""
REASON_ASKED = "asked"
"""The consumer asked for it."""


@dataclass(frozen=True, slots=True)
class Again:
    """The message comes again."""

    delay_ms: int
    attempt: int
    """How many tries count until now."""


@dataclass(frozen=True, slots=True)
class Park:
    """The message goes to the group's dead letters."""

    reason: str
    attempt: int
    """How many tries there were."""


@dataclass(frozen=True, slots=True)
class FailureRule:
    """What a group, or one failure, says of it."""

    attempts_max: int = ATTEMPTS_MAX
    """How many tries a message has; 0 = as many as it takes."""
    delays_ms: tuple[int, ...] = (0,)
    """How long to wait after the first, second, … try; the last one stands for all later ones."""

    def is_last(self, attempt: int) -> bool:
        """Whether try number `attempt`, from 1, leaves none."""
        return 0 < self.attempts_max <= attempt

    def delay_ms(self, attempt: int) -> int:
        """How long to wait after try number `attempt`, from 1."""
        return self.delays_ms[min(max(attempt, 1), len(self.delays_ms)) - 1] if self.delays_ms else 0

    def after(self, attempt: int, *, counts: bool = True, park: bool = False) -> Again | Park:
        """What happens after try number `attempt`, from 1, failed.

        `park`: the consumer gives the message up. Unless it `counts`, the try is as if it had never been.
        """
        if park:
            return Park(REASON_ASKED, attempt)
        if counts and self.is_last(attempt):
            return Park(REASON_ATTEMPTS, attempt)
        return Again(self.delay_ms(attempt), attempt if counts else attempt - 1)
