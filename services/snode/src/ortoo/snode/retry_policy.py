"""When a message that failed comes again: back-off policies as lists of delays, one an attempt."""

from dataclasses import dataclass

from ortoo.common.delay_levels import DELAY_LEVELS_MS
from ortoo.common.errors import Invalid

FIRST_RETRY_LEVEL = 3
"""The delay level after the first failed attempt."""
DELAYS_MAX = 64
DELAY_MS_MAX = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait after the first, second, … failed attempt; the last delay stands for all later ones."""

    delays_ms: tuple[int, ...]

    @classmethod
    def classic(cls) -> "RetryPolicy":
        """As RocketMQ does: 10 s, 30 s, 1 min … 2 h, by the levels from 3 on."""
        return cls(DELAY_LEVELS_MS[FIRST_RETRY_LEVEL - 1 :])

    @classmethod
    def exponential(cls, first_ms: int, max_ms: int, factor: float = 2.0) -> "RetryPolicy":
        """`first_ms`, then each time `factor` times as long, up to `max_ms`. Errors: Invalid."""
        if not 0 < first_ms <= max_ms <= DELAY_MS_MAX or factor < 1:
            raise Invalid(
                f"first {first_ms} ms, longest {max_ms} ms, factor {factor}; expected 0 < first <= longest <= "
                f"{DELAY_MS_MAX} and a factor of 1 or more",
                field="retry",
            )
        delays = [float(first_ms)]
        while delays[-1] < max_ms and len(delays) < DELAYS_MAX and factor > 1:
            delays.append(min(delays[-1] * factor, max_ms))
        return cls(tuple(int(delay) for delay in delays))

    @classmethod
    def customised(cls, delays_ms: tuple[int, ...]) -> "RetryPolicy":
        """These delays, one after another. Errors: Invalid."""
        if not 1 <= len(delays_ms) <= DELAYS_MAX or any(not 0 <= one <= DELAY_MS_MAX for one in delays_ms):
            raise Invalid(f"give 1 to {DELAYS_MAX} delays of 0 to {DELAY_MS_MAX} ms", field="retry")
        return cls(delays_ms)

    def delay_ms(self, attempt: int) -> int:
        """The delay after failed attempt number `attempt`, from 1."""
        return self.delays_ms[min(max(attempt, 1), len(self.delays_ms)) - 1]
