"""RocketMQ's eighteen delay levels, for programs that use levels instead of times."""

from typing import Final

from ortoo.common.errors import Invalid

DELAY_LEVELS_MS: Final = tuple(
    1000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
"""The delay of each level; level 1 is the first."""


def delay_ms_of_level(level: int) -> int:
    """The delay of a level, 0 for level 0. Levels above the last have the last level's delay.

    Errors: Invalid for a negative level.
    """
    if level < 0:
        raise Invalid(f"{level}; delay levels are 1 to {len(DELAY_LEVELS_MS)}, 0 = at once", field="delay_level")
    return DELAY_LEVELS_MS[min(level, len(DELAY_LEVELS_MS)) - 1] if level else 0
