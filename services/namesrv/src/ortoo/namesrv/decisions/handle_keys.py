"""The rotation of the keys that seal receipt handles, and how long keys are kept. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ortoo.common.groups.handle_seal import HandleKey, HandleKeys

DAY_MS = 86_400_000
HANDLE_LIFETIME_MS = 367 * DAY_MS
"""The longest lifetime of a handle: a message may be delayed for 366 days."""


@dataclass(frozen=True, slots=True)
class KeyRotation:
    """The rules by which the keys that seal receipt handles are replaced."""

    interval_ms: int = 30 * DAY_MS
    """How long a key is used for new handles."""
    unsigned_grace_ms: int = DAY_MS
    """How long handles without a seal remain valid after the first key was created."""

    def is_due(self, keys: Sequence[HandleKey], now_ms: int) -> bool:
        """Whether a new key must be created; `keys` are sorted by age, the newest last."""
        return not keys or now_ms - keys[-1].created_at_ms >= self.interval_ms

    def add_key(self, keys: Sequence[HandleKey], new: HandleKey) -> tuple[HandleKey, ...]:
        """Append `new` to `keys`, and drop the keys whose handles have all expired."""
        kept = [old for old, by in pairwise([*keys, new]) if new.created_at_ms - by.created_at_ms < HANDLE_LIFETIME_MS]
        return (*kept, new)

    def distributed_keys(self, keys: tuple[HandleKey, ...], *, unsigned_before: bool) -> HandleKeys:
        """The keys as sent to snodes, and the time until which snodes accept handles without a seal.

        `unsigned_before` = there may be such handles, because an earlier version created the directory.
        """
        since_ms = keys[0].created_at_ms + self.unsigned_grace_ms if keys and unsigned_before else 0
        return HandleKeys(keys, since_ms)
