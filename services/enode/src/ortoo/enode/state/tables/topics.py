"""Topics as the enode stores them."""

from collections.abc import Iterator
from typing import ClassVar

from ortoo.common.groups.group_topics import group_of_retry_topic
from ortoo.enode.changes.kinds import DirectoryTopicPut, TopicPut
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.state.table import StateTable


class TopicTable(StateTable[TopicCopy]):
    """The table of topics: topic id to the newest copy from the directory that reported the topic last."""

    def get(self, topic_id: int) -> TopicCopy | None:
        """The copy of a topic; None if it is unknown."""
        return self._topics.get(topic_id)

    def retry_owner(self, topic_id: int) -> str | None:
        """The group to which a retry topic belongs; None for other and unknown topics."""
        copy = self._topics.get(topic_id)
        return None if copy is None else group_of_retry_topic(copy.name)

    def all(self) -> list[TopicCopy]:
        """All copies, by topic id."""
        return [self._topics[topic_id] for topic_id in sorted(self._topics)]

    def unsorted(self) -> list[TopicCopy]:
        """All copies, in any order."""
        return list(self._topics.values())

    @property
    def count(self) -> int:
        """The number of copies."""
        return len(self._topics)

    def checkpoint(self) -> Iterator[bytes]:
        """The whole table as encoded changes."""
        for copy in self.all():
            yield topic_change(copy).encoded()

    def _put(self, change: TopicPut | DirectoryTopicPut) -> None:
        directory_id = change.directory_id if isinstance(change, DirectoryTopicPut) else ""
        known = self._topics.get(change.topic_id)
        # Versions of different directories cannot be compared.
        if known is None or known.directory_id != directory_id or known.version <= change.version:
            self._topics[change.topic_id] = TopicCopy(
                change.topic_id, change.name, change.queue_count, change.version, directory_id
            )

    FOLDS: ClassVar = {TopicPut: _put, DirectoryTopicPut: _put}


def topic_change(copy: TopicCopy) -> TopicPut | DirectoryTopicPut:
    """The change that stores this copy."""
    if not copy.directory_id:
        return TopicPut(copy.topic_id, copy.version, copy.queue_count, copy.name)
    return DirectoryTopicPut(copy.topic_id, copy.version, copy.queue_count, copy.directory_id, copy.name)
