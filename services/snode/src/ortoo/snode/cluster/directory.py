"""The snode's copy of the cluster's directory: applies changes and answers lookups without I/O or clock."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TypeVar

from ortoo.common.errors import Invalid, NotFound
from ortoo.common.groups.handle_seal import HandleSeals
from ortoo.snode.cluster.routes import EnodeEntry, Group, Queue, RouteChange, SnodeEntry, Topic

Kind = TypeVar("Kind", Topic, Group)
SENDABLE_MAX = 4_096


class Directory:
    """Topics, groups and processes by name, at one version."""

    def __init__(self, seals: HandleSeals | None = None) -> None:
        """Start empty."""
        self.seals = seals or HandleSeals()
        """For handles, with the latest keys from the name server."""
        self.version = 0
        self.directory_id = ""
        self._topics: dict[str, Topic] = {}
        self._groups: dict[str, Group] = {}
        self._enodes: dict[str, EnodeEntry] = {}
        self._snodes: dict[str, SnodeEntry] = {}
        self._sendable: dict[int, tuple[Sequence[Queue], Sequence[Queue]]] = {}
        """The writable queues among requested ones, cached: every send needs them, and a topic may have thousands."""

    def apply(self, change: RouteChange) -> set[str]:
        """Apply a change; returns the names of the topics that are new, changed or deleted.

        One of several name servers may lag behind another. Its snapshot then lacks newer changes.
        """
        before = self._topics
        if change.handle_keys is not None:
            self.seals.use(change.handle_keys)
        if change.snapshot and change.directory_id != self.directory_id:
            # Versions of another directory cannot be compared with those stored here.
            self._topics, self._groups = {}, {}
            self.directory_id = change.directory_id
        topics = _applied(self._topics, change.topics, change.deleted_topics, change)
        self._topics, self._groups = topics, _applied(self._groups, change.groups, change.deleted_groups, change)
        if change.snapshot:
            # A name server that just started has no leases yet; the earlier addresses are still worth a try.
            self._enodes = {n: dataclasses.replace(e, alive=False) for n, e in self._enodes.items()}
            self._snodes = {n: dataclasses.replace(s, alive=False) for n, s in self._snodes.items()}
        self._enodes.update((enode.name, enode) for enode in change.enodes)
        self._snodes.update((snode.name, snode) for snode in change.snodes)
        self.version = change.version
        self._sendable.clear()
        return {name for name in before.keys() | topics.keys() if before.get(name) != topics.get(name)}

    def learn_topic(self, topic: Topic) -> bool:
        """Store a topic from a direct query; True if it is newer than the stored one. The watch will send it too."""
        known = self._topics.get(topic.name)
        if known is not None and known.version >= topic.version:
            return False
        self._topics[topic.name] = topic
        return True

    def learn_group(self, group: Group) -> None:
        """Store a group from a direct query, unless it is stored."""
        known = self._groups.get(group.name)
        if known is None or known.version < group.version:
            self._groups[group.name] = group

    def find_topic(self, name: str) -> Topic | None:
        """A topic, or None if it is not stored here."""
        return self._topics.get(name)

    def topic(self, name: str) -> Topic:
        """A topic. Errors: NotFound."""
        topic = self._topics.get(name)
        if topic is None:
            raise unknown_topic(name)
        return topic

    def topic_name(self, topic_id: int) -> str:
        """The name of the topic with this id; empty if it is not stored here. Scans all topics."""
        return next((topic.name for topic in self._topics.values() if topic.topic_id == topic_id), "")

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def group(self, name: str) -> Group | None:
        """A group's configuration, or None if it is not stored here."""
        return self._groups.get(name)

    def enode(self, name: str) -> EnodeEntry | None:
        """A storage node, or None if it has never registered."""
        return self._enodes.get(name)

    def enodes(self) -> list[EnodeEntry]:
        """All storage nodes, by name."""
        return [self._enodes[name] for name in sorted(self._enodes)]

    def snodes(self) -> list[SnodeEntry]:
        """All proxies, by name."""
        return [self._snodes[name] for name in sorted(self._snodes)]

    def to_send(self, queues: Sequence[Queue]) -> Sequence[Queue]:
        """The queues whose enode has a lease and accepts messages; if none has, those whose enode refuses writes."""
        cached = self._sendable.get(id(queues))
        if cached is not None and cached[0] is queues:
            return cached[1]
        alive = [(q, entry) for q in queues if (entry := self._enodes.get(q.enode)) is not None and entry.alive]
        found = [q for q, entry in alive if not entry.refuses_writes] or [q for q, _ in alive]
        if isinstance(queues, tuple):  # the cached queues of one version of a topic
            if len(self._sendable) >= SENDABLE_MAX:
                self._sendable.clear()
            self._sendable[id(queues)] = (queues, found)
        return found


def _applied(
    known: dict[str, Kind], news: Iterable[Kind], deleted: Iterable[str], change: RouteChange
) -> dict[str, Kind]:
    """The entries after a change; those newer than a snapshot stay."""
    after = {} if change.snapshot else dict(known)
    for name in deleted:
        after.pop(name, None)
    after.update((one.name, one) for one in news)
    if change.snapshot:
        after.update((name, one) for name, one in known.items() if one.version > change.version)
    return after


def unknown_topic(name: str) -> NotFound:
    """The error for a topic that does not exist."""
    return NotFound(
        f"there is no topic {name!r}; create it with `ortoo topic create {name}` "
        "or AdminService/CreateTopic, or fix the name",
        field="topic",
    )


def check_writable(topic: Topic, queue: Queue) -> None:
    """Refuse a queue that takes no messages. Errors: Invalid."""
    if not topic.writable:
        raise Invalid(f"topic {topic.name} is {topic.permission.name}: it accepts no messages", field="queue.topic")
    _check_queue(topic, queue, "write", "that take messages")


def queues_to_write(topic: Topic, queue: Queue | None) -> Sequence[Queue]:
    """The queue that a sender names, or all queues for producers. Errors: Invalid if the topic takes no messages."""
    if queue is not None:
        if queue.topic not in ("", topic.name):
            raise Invalid(
                f"{queue.topic!r}; the request is for topic {topic.name}: name one topic", field="queue.topic"
            )
        queue = queue._replace(topic=topic.name)
        check_writable(topic, queue)
        return [queue]
    queues = topic.write_queues()
    if not topic.writable or not queues:
        raise Invalid(f"topic {topic.name} is {topic.permission.name}: it accepts no messages", field="topic")
    return queues


def check_readable(topic: Topic, queue: Queue) -> None:
    """Refuse a queue that cannot be read. Errors: Invalid."""
    if not topic.readable:
        raise Invalid(f"topic {topic.name} is {topic.permission.name}: it cannot be read", field="queue.topic")
    _check_queue(topic, queue, "read", "that can be read")


def _check_queue(topic: Topic, queue: Queue, what: str, which: str) -> None:
    placement = topic.placement(queue.enode)
    if placement is None:
        enodes = ", ".join(p.enode for p in topic.placements) or "no enode"
        raise Invalid(
            f"topic {topic.name} has no queues on enode {queue.enode!r}, but on {enodes}; QueryRoute names its queues",
            field="queue.enode",
        )
    count = placement.write_queue_count if what == "write" else placement.read_queue_count
    if queue.queue_id >= count:
        raise Invalid(
            f"topic {topic.name} has {what} queues 0 to {count - 1} on {queue.enode}, not {queue.queue_id}; "
            f"QueryRoute names those {which}",
            field="queue.queue_id",
        )
