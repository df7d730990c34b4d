"""The rows that other name servers changed, and a cheap comparison with the directory in memory. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ortoo.common.groups.handle_seal import HandleKey
from ortoo.namesrv.decisions.deletions import GroupDeletion, TopicDeletion
from ortoo.namesrv.decisions.groups import Group
from ortoo.namesrv.decisions.topics import Topic

LOW_BITS: Final = (1 << 32) - 1
"""The part of an id or a time that is added up, so that no sum exceeds 63 bits."""


class RowSums(NamedTuple):
    """The number of topics and groups, and the sums of their versions, ids and times of creation.

    Each change gives its rows a new version, and each new topic has a random id. So a database that was restored, and
    lost changes or got others instead, has other sums.
    """

    topics: int = 0
    topic_versions: int = 0
    topic_ids: int = 0
    groups: int = 0
    group_versions: int = 0
    group_times: int = 0

    def plus(self, topics: Iterable[Topic], groups: Iterable[Group], sign: int = 1) -> "RowSums":
        """The sums with these rows; without them if `sign` is -1."""
        added = [0] * len(self)
        for topic in topics:
            added[0] += 1
            added[1] += topic.version
            added[2] += topic.topic_id & LOW_BITS
        for group in groups:
            added[3] += 1
            added[4] += group.version
            added[5] += group.created_at_ms & LOW_BITS
        return RowSums(*(known + sign * more for known, more in zip(self, added, strict=True)))


@dataclass(frozen=True, slots=True)
class StoredChanges:
    """The rows of the database that were changed after a version, and all deletions."""

    version: int
    topics: tuple[Topic, ...]
    groups: tuple[Group, ...]
    deletions: tuple[TopicDeletion, ...]
    group_deletions: tuple[GroupDeletion, ...]
    handle_keys: tuple[HandleKey, ...]
    sums: RowSums
    """Of all stored topics and groups."""
