"""The patterns of SQL's LIKE: `%` is any text, `_` any character. Matching never backtracks over a `%`."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

Part = tuple[str | None, ...]
"""What lies between two `%`: characters, None for any one."""
PATTERN_LENGTH_MAX: Final = 256
"""How many characters a pattern may have."""


def matches(parts: Sequence[Part], text: str) -> bool:
    """Whether `text` is `parts` with any texts between them."""
    first, last = parts[0], parts[-1]
    end = len(text) - len(last)
    if len(parts) == 1:
        return end == 0 and _compiled(first).match(text) is not None
    if end < len(first) or not _compiled(first).match(text) or not _compiled(last).match(text, end):
        return False
    at = len(first)
    for part in parts[1:-1]:
        found = _compiled(part).search(text, at, end)
        if found is None:
            return False
        at = found.end()
    return True


@lru_cache(maxsize=1024)
def _compiled(part: Part) -> re.Pattern[str]:
    return re.compile("".join("." if sign is None else re.escape(sign) for sign in part), re.DOTALL)
