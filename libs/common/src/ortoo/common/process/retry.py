"""A pure schedule of retry delays."""

from dataclasses import dataclass

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
