"""The configuration of a consumer group. `Group` is the only list of the settings that the servers know.

A new setting is a field of `Group` with its default and, for a number, its maximum in `MAXIMA`. The name server's
tables, its checks, and the conversions of both servers follow the fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from ortoo.common.groups.failure_rule import ATTEMPTS_LIMIT, ATTEMPTS_MAX
from ortoo.common.groups.retry_policy import RetryPolicy


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group with its settings."""

    name: str
    version: int = 0
    consume_enabled: bool = True
    slow_consumer_threshold_messages: int = 1024
    slow_consumer_grace_ms: int = 10_000
    created_at_ms: int = 0
    broadcast_enabled: bool = True
    notify_members_changed: bool = True
    unacknowledged_bytes_max: int = 64 << 20
    """The largest number of unacknowledged bytes of a push session."""
    attempts_max: int = ATTEMPTS_MAX
    retry: RetryPolicy = RetryPolicy()
    in_flight_max: int = 0
    """The largest number of leased messages of a topic on each enode; 0 = 10,000 per queue."""
    park_expired: bool = False
    auto_created: bool = False
    """Whether the group was created automatically because a consumer named it. All other groups are *declared*."""
    lite_exclusive: bool = False
    """Whether each lite topic is for one group member alone, the last one that subscribed."""


SETTINGS: Final = tuple(one.name for one in fields(Group) if one.name not in ("name", "version", "created_at_ms"))
"""The settings of a group that can be changed."""
DEFAULTS: Final = Group("")
"""A group with the default of each setting."""
ZERO_IS_DEFAULT: Final = ("slow_consumer_threshold_messages", "unacknowledged_bytes_max", "attempts_max")
"""The settings in which 0 stands for the default."""
MAXIMA: Final[Mapping[str, int]] = {
    "slow_consumer_threshold_messages": 1_000_000_000,
    "slow_consumer_grace_ms": 86_400_000,
    "unacknowledged_bytes_max": 16 << 30,
    "attempts_max": ATTEMPTS_LIMIT,
    "in_flight_max": 1_000_000,
}
"""The largest value of each setting that is a number."""
