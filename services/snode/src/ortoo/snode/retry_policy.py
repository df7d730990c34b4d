"""When a message that failed comes again: back-off policies as lists of delays, one an attempt."""

from dataclasses import dataclass

from ortoo.common.errors import Invalid

LEVELS_MS = tuple(
    1000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
"""RocketMQ's 18 delay levels; level 1 is the first."""
FIRST_RETRY_LEVEL = 3
DELAYS_MAX = 64
DELAY_MS_MAX = 7 * 86_400_000


def level_delay_ms(level: int) -> int:
    """The delay of a level; a larger one than 18 is the last. Errors: Invalid below 1."""
    if level < 1:
        raise Invalid(f"delay level {level}; levels are 1 to {len(LEVELS_MS)}", field="delay_level")
    return LEVELS_MS[min(level, len(LEVELS_MS)) - 1]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait after the first, second, … failed attempt; the last delay stands for all later ones."""

    delays_ms: tuple[int, ...]

    @classmethod
    def classic(cls) -> "RetryPolicy":
        """As RocketMQ does: 10 s, 30 s, 1 min … 2 h, by the levels from 3 on."""
        return cls(LEVELS_MS[FIRST_RETRY_LEVEL - 1 :])

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
