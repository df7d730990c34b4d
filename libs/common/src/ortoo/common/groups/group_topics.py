"""The topics that belong to a group or to another topic, and their owners. The names that servers derive from a group.

Only servers write to the retry topic and the dead-letter topic of a group.
"""

import enum
from typing import Final, NamedTuple

RETRY_PREFIX, DEAD_LETTER_PREFIX = "%RETRY%", "%DLQ%"
"""Prefixes of the topics that belong to a group."""
LITE_PREFIX = "%LMQ%|"
"""Prefix of the topics that store messages of lite topics: %LMQ%|PARENT|LITE."""
LOCK_PREFIX: Final = "%LMQ%"
"""Prefix of a group's name in the locks of lite topics: the group itself pops, and then it cannot have locks."""
REPLAY_PREFIX: Final = "%REPLAY%"
"""Prefix of a group's name in the marks of replayed dead letters."""
DERIVED_PREFIXES: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX, LOCK_PREFIX, REPLAY_PREFIX)
"""Prefixes of names that servers derive from the name of a group."""


class OwnedTopicKind(enum.IntEnum):
    """The kind of a topic that belongs to a group; the numbers are used on the wire."""

    UNSPECIFIED = 0
    """It belongs to no group."""
    RETRY = 1
    DEAD_LETTER = 2


_PREFIXES: Final = {OwnedTopicKind.RETRY: RETRY_PREFIX, OwnedTopicKind.DEAD_LETTER: DEAD_LETTER_PREFIX}


class TopicOwner(NamedTuple):
    """The group to which a topic belongs, and the kind of the topic."""

    group: str = ""
    kind: OwnedTopicKind = OwnedTopicKind.UNSPECIFIED

    @property
    def topic(self) -> str:
        """The name of the topic; empty without a group."""
        return _PREFIXES.get(self.kind, "") + self.group


NO_OWNER: Final = TopicOwner()


def owner_of_name(name: str) -> TopicOwner:
    """The owner of a topic with this name, as servers derive the name from it. `NO_OWNER` for other topics."""
    for kind, prefix in _PREFIXES.items():
        if name.startswith(prefix):
            return TopicOwner(name.removeprefix(prefix), kind)
    return NO_OWNER


class TopicGovernor(NamedTuple):
    """The group or the topic whose permissions apply to a topic; without both, its own permissions apply."""

    group: str | None = None
    parent: str | None = None


def governor_of_name(name: str) -> TopicGovernor:
    """The governor of a topic that is known only by its name."""
    return TopicGovernor(group_of_topic(name), parent_of_topic(name))


def group_of_topic(name: str) -> str | None:
    """The group of a retry topic or dead-letter topic; None for other topics."""
    owner = owner_of_name(name)
    return owner.group if owner.kind else None


def group_of_retry_topic(name: str) -> str | None:
    """The group of a retry topic, which reads it from its first message; None for other topics."""
    owner = owner_of_name(name)
    return owner.group if owner.kind is OwnedTopicKind.RETRY else None


def parent_of_topic(name: str) -> str | None:
    """The parent of a lite topic; None for other topics. Only the parent's name may contain `|`."""
    return name.removeprefix(LITE_PREFIX).rpartition("|")[0] if name.startswith(LITE_PREFIX) else None
