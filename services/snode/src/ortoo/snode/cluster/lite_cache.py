"""The lite topics that clients of this snode use: a bounded copy, loaded on demand. Pure.

The name server's watch reports every later change of lite topics, but only names in this copy are updated. So a name is
entered before it is requested: a change that overtakes the answer is not lost.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ortoo.common.groups.group_topics import parent_of_topic
from ortoo.snode.cluster.routes import Topic

LITE_TOPICS_MAX = 200_000
"""The maximum number of names; the least recently used are removed. More than the subscriptions of a snode."""


class _Entry(NamedTuple):
    """The state of one name."""

    topic: Topic | None
    """None = it does not exist, or is not known."""
    version: int
    """The version of the directory in which this was seen. A restored directory has older topics at a new version."""
    is_current: bool
    """Whether later changes of the topic have been seen; otherwise it is requested at its next use."""


_UNKNOWN = _Entry(None, 0, is_current=False)


class LiteTopicCache:
    """The lite topics that clients of this snode have named, also those that do not exist."""

    def __init__(self, size_max: int = LITE_TOPICS_MAX) -> None:
        """Start empty."""
        self._size_max = size_max
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._of_parents: dict[str, set[str]] = {}
        """The names of the existing topics in the copy, by parent."""
        self._complete: set[str] = set()
        """The parents whose lite topics are all in the copy, or are being listed."""
        self._fresh_version = 0
        """The version at which the present watch began; answers of earlier versions may lack changes."""
        self.directories = 0
        """The number of directories that were followed before. An answer from before a change is of another one."""

    def __len__(self) -> int:
        """The number of names."""
        return len(self._entries)

    def find(self, name: str) -> Topic | None:
        """The topic with this name; None if it does not exist, or is not in the copy."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        self._entries.move_to_end(name)
        return entry.topic

    def find_by_id(self, topic_id: int) -> Topic | None:
        """The topic with this id, or None. Goes through the copy."""
        return next((e.topic for e in self._entries.values() if e.topic and e.topic.topic_id == topic_id), None)

    def names(self) -> list[str]:
        """All names."""
        return list(self._entries)

    def names_of(self, parent: str) -> list[str]:
        """The names of the topics of a parent, as far as they are in the copy, sorted."""
        return sorted(self._of_parents.get(parent, ()))

    def is_complete(self, parent: str) -> bool:
        """Whether all lite topics of a parent are in the copy, or are being listed."""
        return parent in self._complete

    def enter(self, names: Iterable[str]) -> list[str]:
        """Enter names that a client uses; returns those that must be requested from a name server."""
        wanted = []
        for name in names:
            entry = self._entries.setdefault(name, _UNKNOWN)
            self._entries.move_to_end(name)
            if not entry.is_current:
                wanted.append(name)
        self._shrink()
        return wanted

    def enter_parent(self, parent: str) -> None:
        """Enter all lite topics of a parent, which are requested next."""
        self._complete.add(parent)

    def abandon_parent(self, parent: str) -> None:
        """Undo `enter_parent` after a failed request."""
        self._complete.discard(parent)

    def learn(self, names: Iterable[str], found: Mapping[str, Topic], version: int, seen_version: int) -> set[str]:
        """Learn the answer to a request for entered names; returns the names whose topic has changed.

        `version` is that of the directory in the answer, and `seen_version` that of the watch when the names were
        entered. An older answer may lack changes that were seen before, so it is requested again at the next use.
        """
        is_current, changed = version >= max(seen_version, self._fresh_version), set[str]()
        for name in names:
            entry = self._entries.get(name)
            if entry is None:  # removed meanwhile
                continue
            topic = found.get(name)
            at = version if topic is None else max(version, topic.version)
            if at >= entry.version:
                if self._set(name, _Entry(topic, at, is_current)):
                    changed.add(name)
            elif is_current:  # a later change was seen before the answer
                self._entries[name] = entry._replace(is_current=True)
        return changed

    def remember(self, topics: Iterable[Topic], version: int, seen_version: int) -> None:
        """Enter lite topics that were requested by id. They are requested again at their next use by name.

        `version` is that of the directory in the answer, and `seen_version` that of the watch now. An older answer may
        lack changes that the watch has reported while the copy did not have the names, so it is not used.
        """
        for topic in topics if version >= seen_version else ():
            if topic.parent and self._entries.get(topic.name, _UNKNOWN).version < version:
                self._set(topic.name, _Entry(topic, version, is_current=False))
        self._shrink()

    def learn_page(self, parent: str, topics: Collection[Topic], version: int, seen_version: int) -> None:
        """Learn a page of the list of an entered parent. After an older answer the parent is listed again."""
        if version < max(seen_version, self._fresh_version):
            self._complete.discard(parent)
        self.enter([topic.name for topic in topics])
        self.learn([one.name for one in topics], {one.name: one for one in topics}, version, seen_version)

    def apply(self, topics: Iterable[Topic], deleted: Iterable[str], version: int) -> set[str]:
        """Apply changes of the watch to the names in the copy; returns the names whose topic has changed."""
        changed = set[str]()
        for topic in topics:
            entry = self._entries.get(topic.name)
            if entry is None and topic.parent in self._complete:
                entry = _Entry(None, 0, is_current=True)
            is_older = entry is not None and entry.version < version
            if entry is not None and is_older and self._set(topic.name, _Entry(topic, version, entry.is_current)):
                changed.add(topic.name)
        for name in deleted:
            entry = self._entries.get(name)
            if entry is None and parent_of_topic(name) in self._complete:
                entry = _Entry(None, 0, is_current=True)  # it may be in a list that is on its way
            is_older = entry is not None and entry.version < version
            if entry is not None and is_older and self._set(name, _Entry(None, version, entry.is_current)):
                changed.add(name)
        self._shrink()
        return changed

    def expire(self, version: int) -> None:
        """Require a request for each name before its next use: changes before `version` may have been missed.

        Topics of a later version count as seen in this one, because the directory may have been restored to it.
        """
        self._complete.clear()
        self._fresh_version = version
        for name, entry in self._entries.items():
            self._entries[name] = entry._replace(is_current=False, version=min(entry.version, version))

    def clear(self, version: int) -> set[str]:
        """Forget the topics of another directory, but not the names; returns the names of the topics.

        `version` is that of the new directory.
        """
        known = {name for name, entry in self._entries.items() if entry.topic is not None}
        self.directories += 1
        self._fresh_version = version
        self._complete.clear()
        self._of_parents.clear()
        self._entries = OrderedDict.fromkeys(self._entries, _UNKNOWN)
        return known

    def _set(self, name: str, entry: _Entry) -> bool:
        """Replace an entry; returns whether its topic has changed."""
        before = self._entries.get(name, _UNKNOWN).topic
        self._entries[name] = entry
        if before is not None and entry.topic is None:
            self._forget_child(before)
        elif entry.topic is not None:
            self._of_parents.setdefault(entry.topic.parent, set()).add(name)
        return before != entry.topic

    def _forget_child(self, topic: Topic) -> None:
        names = self._of_parents[topic.parent]
        names.discard(topic.name)
        if not names:
            del self._of_parents[topic.parent]

    def _shrink(self) -> None:
        while len(self._entries) > self._size_max:
            _, entry = self._entries.popitem(last=False)
            if entry.topic is not None:
                self._forget_child(entry.topic)
                self._complete.discard(entry.topic.parent)
