"""The back-off policies of groups, as lists of delays, one per failed attempt.

    RetryPolicy.read("exponential:1s:10m").delays_ms[2]     # 4000
    RetryPolicy.read("list:1s,5s,30s").text()               # "list:1000,5000,30000"

A policy is sent as the message RetryPolicy. In databases and settings it is the text "classic",
"exponential:FIRST:LONGEST[:FACTOR]" or "list:DELAY,DELAY,…". Delays are in milliseconds, or end with ms, s, m or h.
"""

import enum
import re
from dataclasses import dataclass
from functools import lru_cache

from ortoo.common.errors import Invalid
from ortoo.common.groups.delay_levels import DELAY_LEVELS_MS

FIRST_RETRY_LEVEL = 3
"""The delay level after the first failed attempt."""
DELAYS_MAX = 64
DELAY_MS_MAX = 7 * 86_400_000
FACTOR_DEFAULT = 2.0
FACTOR_MAX = 100.0
TEXT_LENGTH_MAX = 1_024

_DELAY = re.compile(r"(\d{1,12})(ms|s|m|h|)")
_UNIT_MS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


class RetryKind(enum.IntEnum):
    """The kinds of retry policies; the numbers are those on the wire."""

    CLASSIC = 0
    """RocketMQ's delays: 10 s, 30 s, 1 min … 2 h."""
    EXPONENTIAL = 1
    LIST = 2


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The delay after the first, second, … failed attempt; the last delay stands for all later attempts."""

    kind: RetryKind = RetryKind.CLASSIC
    first_delay_ms: int = 0
    """The first delay of an exponential policy."""
    delay_max_ms: int = 0
    """The longest delay of an exponential policy."""
    factor: float = 0.0
    """The factor between successive delays of an exponential policy. 0 = 2."""
    listed_delays_ms: tuple[int, ...] = ()
    """The delays of a list policy."""

    @classmethod
    def read(cls, text: str, field: str = "retry") -> "RetryPolicy":
        """A policy from its text. Errors: Invalid, naming `field`."""
        kind, _, rest = text.strip().partition(":")
        try:
            if len(text) > TEXT_LENGTH_MAX:
                raise ValueError(text)
            if kind == "classic" and not rest:
                return cls()
            if kind == "exponential":
                first, longest, *factor = rest.split(":")
                if len(factor) > 1:
                    raise ValueError(text)
                times = float(factor[0]) if factor else FACTOR_DEFAULT
                return cls(RetryKind.EXPONENTIAL, _delay_ms(first), _delay_ms(longest), times).with_defaults(field)
            if kind == "list":
                return cls(RetryKind.LIST, listed_delays_ms=tuple(map(_delay_ms, rest.split(",")))).with_defaults(field)
        except ValueError:
            pass
        raise Invalid(
            f"{text[:80]!r} is no back-off; give classic, list:1s,5s,30s, or exponential:FIRST:LONGEST[:FACTOR] "
            "such as exponential:1s:10m (the default factor is 2)",
            field=field,
        )

    @property
    def delays_ms(self) -> tuple[int, ...]:
        """The delays after the first, second, … failed attempt; the last delay stands for all later attempts."""
        return _delays_ms(self)

    def with_defaults(self, field: str = "retry") -> "RetryPolicy":
        """The policy with defaults for missing fields, without fields that its kind does not use. Errors: Invalid."""
        if self.kind is RetryKind.CLASSIC:
            return RetryPolicy()
        if self.kind is RetryKind.LIST:
            if not 1 <= len(self.listed_delays_ms) <= DELAYS_MAX or any(
                not 0 <= one <= DELAY_MS_MAX for one in self.listed_delays_ms
            ):
                raise Invalid(
                    f"give 1 to {DELAYS_MAX} delays of 0 to {DELAY_MS_MAX} ms", field=f"{field}.listed_delays_ms"
                )
            return RetryPolicy(RetryKind.LIST, listed_delays_ms=tuple(self.listed_delays_ms))
        factor = self.factor or FACTOR_DEFAULT
        if not 0 < self.first_delay_ms <= self.delay_max_ms <= DELAY_MS_MAX or not 1 <= factor <= FACTOR_MAX:
            raise Invalid(
                f"first {self.first_delay_ms} ms, longest {self.delay_max_ms} ms, factor {factor}; expected 0 < "
                f"first <= longest <= {DELAY_MS_MAX} and a factor from 1 to {FACTOR_MAX:g}",
                field=field,
            )
        return RetryPolicy(RetryKind.EXPONENTIAL, self.first_delay_ms, self.delay_max_ms, factor)

    def text(self) -> str:
        """The policy as a text that `read` accepts."""
        if self.kind is RetryKind.EXPONENTIAL:
            return f"exponential:{self.first_delay_ms}:{self.delay_max_ms}:{self.factor:g}"
        if self.kind is RetryKind.LIST:
            return f"list:{','.join(map(str, self.listed_delays_ms))}"
        return "classic"


@lru_cache(maxsize=1_024)
def _delays_ms(policy: RetryPolicy) -> tuple[int, ...]:
    if policy.kind is RetryKind.LIST:
        return policy.listed_delays_ms
    if policy.kind is RetryKind.CLASSIC:
        return DELAY_LEVELS_MS[FIRST_RETRY_LEVEL - 1 :]
    delays = [float(policy.first_delay_ms)]
    while delays[-1] < policy.delay_max_ms and len(delays) < DELAYS_MAX and policy.factor > 1:
        delays.append(min(delays[-1] * policy.factor, policy.delay_max_ms))
    return tuple(int(delay) for delay in delays)


def _delay_ms(text: str) -> int:
    found = _DELAY.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    return int(found[1]) * _UNIT_MS[found[2]]
