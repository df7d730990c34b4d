"""The valid names of topics, groups and processes, and the checksum of topics by id.

The pattern and the lengths are RocketMQ's (`%` and `|` included), because its clients check the same ones.
"""

import re
from typing import Final

from ortoo.common.errors import Invalid

TOPIC_NAME_LENGTH_MAX = 127
GROUP_NAME_LENGTH_MAX = 120
PROCESS_NAME_LENGTH_MAX = 63

TOPICS_MAX = 1_024
"""Largest number of topics that one call describes."""
LITE_CHECKSUM_MODULUS: Final = 1 << 64
_ID_FACTOR: Final = 0x9E3779B97F4A7C15
_VERSION_FACTOR: Final = 0xC2B2AE3D27D4EB4F
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+\Z")
_PROCESS_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.@-]*\Z")


def check_topic_name(name: str, field: str = "topic") -> None:
    """Raise Invalid unless `name` is valid for a topic."""
    _check(name, field, "topic", _NAME, "letters, digits and _ - % |", TOPIC_NAME_LENGTH_MAX)


def check_group_name(name: str, field: str = "group") -> None:
    """Raise Invalid unless `name` is valid for a consumer group."""
    _check(name, field, "group", _NAME, "letters, digits and _ - % |", GROUP_NAME_LENGTH_MAX)


def check_schedule_name(name: str, field: str = "name") -> None:
    """Raise Invalid unless `name` is valid for a schedule."""
    _check(name, field, "schedule", _NAME, "letters, digits and _ - % |", TOPIC_NAME_LENGTH_MAX)


def check_process_name(name: str, field: str = "name") -> None:
    """Raise Invalid unless `name` is valid for an enode or a snode. `@` separates an availability zone: zone@name."""
    _check(name, field, "process", _PROCESS_NAME, "letters, digits and _ - . @", PROCESS_NAME_LENGTH_MAX)


def _check(name: str, field: str, what: str, pattern: re.Pattern[str], allowed: str, length_max: int) -> None:
    if not name:
        raise Invalid(f"the {what} name is empty; give 1 to {length_max} of {allowed}", field=field)
    if len(name) > length_max:
        raise Invalid(f"the {what} name has {len(name)} characters; at most {length_max} are allowed", field=field)
    if not pattern.match(name):
        wrong = sorted({c for c in name if not pattern.match("a" + c)})
        raise Invalid(
            f"the {what} name {name!r} has {' '.join(map(repr, wrong))}; only {allowed} are allowed", field=field
        )


def lite_checksum(topic_id: int, version: int) -> int:
    """The checksum of one lite topic. The checksum of several is the sum, modulo LITE_CHECKSUM_MODULUS.

    Each change of a topic gives it a new version, so the id and the version determine its content.
    """
    return (topic_id * _ID_FACTOR + version * _VERSION_FACTOR) % LITE_CHECKSUM_MODULUS
