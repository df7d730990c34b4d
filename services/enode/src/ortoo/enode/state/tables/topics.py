"""The enode's copies of topics."""

from collections.abc import Iterator

from ortoo.enode.changes.all import Change, TopicGone, TopicPut
from ortoo.enode.log.answers import TopicCopy


class Topics:
    """Topic id to copy; the newest version of each."""

    def __init__(self) -> None:
        """No topics."""
        self._by_id: dict[int, TopicCopy] = {}

    def get(self, topic_id: int) -> TopicCopy | None:
        """The copy of a topic, if it is known."""
        return self._by_id.get(topic_id)

    def all(self) -> list[TopicCopy]:
        """All copies, by topic id."""
        return [self._by_id[topic_id] for topic_id in sorted(self._by_id)]

    def apply(self, change: Change) -> None:
        """Fold one change in; others than those of topics do nothing."""
        if isinstance(change, TopicPut):
            known = self._by_id.get(change.topic_id)
            if known is None or known.version <= change.version:
                self._by_id[change.topic_id] = TopicCopy(
                    change.topic_id, change.name, change.queue_count, change.version
                )
        elif isinstance(change, TopicGone):
            self._by_id.pop(change.topic_id, None)

    def checkpoint(self) -> Iterator[bytes]:
        """The whole as encoded changes."""
        for copy in self.all():
            yield put(copy).encoded()


def put(copy: TopicCopy) -> TopicPut:
    """The change that stores this copy."""
    return TopicPut(copy.topic_id, copy.version, copy.queue_count, copy.name)
