"""The snode's copy of the cluster's directory: applies changes and answers lookups without I/O or clock."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from ortoo.common.cluster.sorted_names import SortedNames
from ortoo.common.directory.group import Group
from ortoo.common.errors import NOT_ACCEPTED_FIELD, Forbidden, Invalid, NotFound, Unavailable
from ortoo.common.groups.group_topics import TopicGovernor, governor_of_name, owner_of_name, parent_of_topic
from ortoo.common.groups.handle_seal import HandleSeals
from ortoo.snode.cluster.lite_cache import LiteTopicCache
from ortoo.snode.cluster.placement_index import PlacementIndex
from ortoo.snode.cluster.routes import DirectoryUpdate, EnodeEntry, Queue, SnodeEntry, Topic

Kind = TypeVar("Kind", Topic, Group)
AVAILABLE_CACHE_MAX = 4_096


class DirectoryCache:
    """The snode's copy of the directory: topics, groups and processes by name, at one version."""

    def __init__(self, seals: HandleSeals | None = None) -> None:
        """Start empty."""
        self.seals = seals or HandleSeals()
        """Makes and checks the seals of handles, with the latest keys from the name server."""
        self.version = 0
        self.directory_id = ""
        self._topics: dict[str, Topic] = {}
        self._topic_names = SortedNames(self._topics)
        self._lite_lifetimes: dict[str, Topic] = {}
        """The parents that set a lifetime of their lite topics."""
        self._groups: dict[str, Group] = {}
        self._enodes: dict[str, EnodeEntry] = {}
        self.enodes_version = 0
        """A number that grows with each change of enodes."""
        self._changed_enodes: set[str] = set()
        """Those that `take_changed_enodes` has not returned yet."""
        self._snodes: dict[str, SnodeEntry] = {}
        self._placed = PlacementIndex()
        self.lite = LiteTopicCache()
        """The lite topics that clients use. All other topics are always in this copy."""
        self._available_cache: dict[int, tuple[Sequence[Queue], Sequence[Queue]]] = {}
        """Results of `available_queues`, cached because every send needs them and a topic may have many queues."""

    def apply(self, change: DirectoryUpdate) -> set[str]:
        """Apply a change; returns the names of new, changed and deleted topics, of lite topics only those in use.

        The cost depends on the size of the change, not of the directory: changed entries are replaced in place. Entries
        with a higher version than a snapshot are kept, because its name server may lag behind.
        """
        if change.handle_keys is not None:
            self.seals.use_keys(change.handle_keys)
        # Versions of another directory cannot be compared with those stored here.
        is_same = change.directory_id == self.directory_id
        forgotten = set[str]()
        if not is_same and change.snapshot:
            forgotten = self.lite.clear(change.version)
        elif change.snapshot or change.resumed:
            self.lite.expire(change.version)
        plain = [topic for topic in change.topics if not topic.parent]
        lite = [topic for topic in change.topics if topic.parent]
        topics = _replaced_entries(self._topics, plain, change.deleted_topics, change, keep_newer=is_same)
        groups = _replaced_entries(self._groups, change.groups, change.deleted_groups, change, keep_newer=is_same)
        for name, topic in topics.items():
            self._replace_topic(name, topic)
        self._topic_names.update(topics)
        for name, group in groups.items():
            if group is None:
                del self._groups[name]
            else:
                self._groups[name] = group
        if change.snapshot:
            self.directory_id = change.directory_id
        if change.snapshot or change.resumed:
            # A name server that just started has no leases yet; the earlier addresses are still worth a try.
            self._enodes = {n: dataclasses.replace(e, alive=False) for n, e in self._enodes.items()}
            self._snodes = {n: dataclasses.replace(s, alive=False) for n, s in self._snodes.items()}
        if change.snapshot or change.resumed or change.enodes:
            self._available_cache.clear()
            self.enodes_version += 1
        self._enodes.update((enode.name, enode) for enode in change.enodes)
        self._changed_enodes.update(enode.name for enode in change.enodes)
        self._snodes.update((snode.name, snode) for snode in change.snodes)
        self.version = change.version
        return forgotten | self.lite.apply(lite, change.deleted_topics, change.version) | set(topics)

    def update_topic(self, topic: Topic) -> bool:
        """Store a topic without a parent from a direct query; returns whether it is newer than the stored topic."""
        current = self._topics.get(topic.name)
        if current is not None and current.version >= topic.version:
            return False
        self._replace_topic(topic.name, topic)
        self._topic_names.update([topic.name])
        return True

    def _replace_topic(self, name: str, topic: Topic | None) -> None:
        """Replace the topic of this name, or remove it if `topic` is None. All indexes of topics follow."""
        previous = self._topics.get(name)
        if previous is not None:
            self._placed.remove(previous)
            self._lite_lifetimes.pop(name, None)
        if topic is None:
            del self._topics[name]
            return
        self._topics[name] = topic
        self._placed.add(topic)
        if topic.lite_ttl_ms:
            self._lite_lifetimes[name] = topic

    def update_group(self, group: Group) -> None:
        """Store a group from a direct query, unless the stored group has the same or a higher version."""
        current = self._groups.get(group.name)
        if current is None or current.version < group.version:
            self._groups[group.name] = group

    def find_topic(self, name: str) -> Topic | None:
        """The topic with this name; None if the copy does not have it. Lite topics are loaded by `DirectoryWatch`."""
        return self._topics.get(name) or self.lite.find(name)

    def topic(self, name: str) -> Topic:
        """The topic with this name. Errors: NotFound."""
        topic = self.find_topic(name)
        if topic is None:
            raise unknown_topic(name)
        return topic

    def parent_of(self, name: str) -> str | None:
        """The parent of a lite topic, also of one that is not in the copy; None for other topics."""
        return None if name in self._topics else parent_of_topic(name)

    def governor_of(self, name: str) -> TopicGovernor:
        """The group or the parent whose permissions apply to a topic, also to one that is not in the copy."""
        topic = self._topics.get(name)
        if topic is None:
            return governor_of_name(name)
        return TopicGovernor(group=topic.owner_group if topic.owner_kind else None)

    def topic_name(self, topic_id: int) -> str:
        """The name of the topic with this id; empty if the copy does not have it. Scans all topics."""
        found = next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)
        found = found or self.lite.find_by_id(topic_id)
        return found.name if found is not None else ""

    def topics(self) -> list[Topic]:
        """All topics that store no lite topic, sorted by name."""
        names, _ = self.topic_page()
        return [self._topics[name] for name in names]

    def parents_with_lifetime(self) -> list[Topic]:
        """The topics whose lite topics expire, sorted by name. The cost does not depend on other topics."""
        return [self._lite_lifetimes[name] for name in sorted(self._lite_lifetimes)]

    def topic_page(self, after: str = "", limit: int = 0) -> tuple[list[str], str]:
        """The names of a page of topics that store no lite topic, as `SortedNames.page`."""
        return self._topic_names.page(after, limit)

    def group(self, name: str) -> Group | None:
        """The configuration of the group with this name; None if the copy does not have it."""
        return self._groups.get(name)

    def enode(self, name: str) -> EnodeEntry | None:
        """The enode with this name; None if this snode has seen no registration of it."""
        return self._enodes.get(name)

    def registered_enode(self, name: str) -> EnodeEntry:
        """An enode. Errors: Unavailable if this snode has seen no registration of it."""
        entry = self._enodes.get(name)
        if entry is None:
            raise unavailable_enode(f"enode {name} has not registered since this snode started; start the enode")
        return entry

    def enodes(self) -> list[EnodeEntry]:
        """The enodes whose registration this snode has seen, sorted by name."""
        return [self._enodes[name] for name in sorted(self._enodes)]

    def take_changed_enodes(self) -> list[EnodeEntry]:
        """The enodes whose registration was added or changed since the previous call, sorted by name.

        So the cost of following enodes depends on their changes, and not on their number.
        """
        names, self._changed_enodes = self._changed_enodes, set()
        return [self._enodes[name] for name in sorted(names)]

    def expected_enodes(self) -> list[EnodeEntry]:
        """The enodes that have a lease or queues of topics, by name.

        The placements of topics are stored, so that a restart of all processes does not hide an enode that stayed away.
        The address of such an enode is empty.
        """
        names = self._placed.enodes() | {name for name, entry in self._enodes.items() if entry.alive}
        return [self._enodes.get(name) or EnodeEntry(name, "", "", alive=False) for name in sorted(names)]

    def topics_on(self, enode: str) -> list[str]:
        """The names of the topics that have queues on an enode and store no lite topic, sorted."""
        return self._placed.topics_on(enode)

    def snodes(self) -> list[SnodeEntry]:
        """All snodes, sorted by name."""
        return [self._snodes[name] for name in sorted(self._snodes)]

    def available_queues(self, queues: Sequence[Queue]) -> Sequence[Queue]:
        """Those of `queues` on live enodes that accept messages; if no enode does, those on all live enodes.

        An enode that follows another directory does not accept messages.
        """
        cached = self._available_cache.get(id(queues))
        if cached is not None and cached[0] is queues:
            return cached[1]
        alive = [(q, entry) for q in queues if (entry := self._enodes.get(q.enode)) is not None and entry.alive]
        found = [q for q, entry in alive if not (entry.write_refusal or entry.other_directory_id)] or [
            q for q, _ in alive
        ]
        if isinstance(queues, tuple):  # the cached queues of one version of a topic
            if len(self._available_cache) >= AVAILABLE_CACHE_MAX:
                self._available_cache.clear()
            self._available_cache[id(queues)] = (queues, found)
        return found


def _replaced_entries(
    current: Mapping[str, Kind],
    updated: Iterable[Kind],
    deleted: Iterable[str],
    change: DirectoryUpdate,
    *,
    keep_newer: bool,
) -> dict[str, Kind | None]:
    """The entries that differ after a change, by name; None for a removed entry.

    Only a snapshot is compared with all current entries. With `keep_newer`, entries newer than a snapshot stay.
    """
    wanted: dict[str, Kind | None] = {one.name: one for one in updated}
    if change.snapshot:
        for name, one in current.items():
            if keep_newer and one.version > change.version:
                wanted[name] = one
            else:
                wanted.setdefault(name, None)
    else:
        for name in deleted:
            wanted.setdefault(name, None)
    return {name: one for name, one in wanted.items() if current.get(name) != one}


def unavailable_enode(message: str) -> Unavailable:
    """The error for a request that was not sent because its enode is unavailable."""
    return Unavailable(message, field=NOT_ACCEPTED_FIELD, retry_after_ms=500)


def unknown_topic(name: str) -> NotFound:
    """The error for a topic that does not exist."""
    return NotFound(
        f"there is no topic {name!r}; create it with `ortoo topic create {name}` "
        "or AdminService/CreateTopic, or fix the name",
        field="topic",
    )


def check_client_writes(topic: Topic | str, field: str = "topic") -> None:
    """Refuse writes of clients to the retry topic and dead-letter topic of a group. Errors: Forbidden.

    A topic that may not exist is given by its name.
    """
    if isinstance(topic, Topic) and not topic.owner_kind:  # each send asks
        return
    name, owner = (topic, owner_of_name(topic)) if isinstance(topic, str) else (topic.name, topic.owner)
    if owner.kind:
        raise Forbidden(
            f"only the servers write to {name}, a topic of group {owner.group}; send to an ordinary topic, and replay "
            "dead letters with DeadLetterService/ReplayDeadLetters",
            field=field,
        )


def check_writable(topic: Topic, queue: Queue) -> None:
    """Refuse a queue to which clients may not send. Errors: Forbidden, Invalid."""
    check_client_writes(topic, "queue.topic")
    if not topic.writable:
        raise Invalid(f"topic {topic.name} is {topic.permission.name}: it accepts no messages", field="queue.topic")
    _check_queue(topic, queue, "write", "that take messages")


def resolve_write_queues(topic: Topic, queue: Queue | None) -> Sequence[Queue]:
    """The queues to which a message may be sent: `queue`, or all queues for producers if it is None.

    Errors: Forbidden for a retry or dead-letter topic, Invalid if the topic or the queue accepts no messages.
    """
    check_client_writes(topic)
    if queue is not None:
        if queue.topic not in ("", topic.name):
            raise Invalid(f"{queue.topic!r} differs from the topic of the request, {topic.name}", field="queue.topic")
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


def _check_queue(topic: Topic, queue: Queue, access: str, description: str) -> None:
    placement = topic.placement(queue.enode)
    if placement is None:
        enodes = ", ".join(p.enode for p in topic.placements) or "no enode"
        raise Invalid(
            f"topic {topic.name} has no queues on enode {queue.enode!r}, but on {enodes}; QueryRoute lists its queues",
            field="queue.enode",
        )
    count = placement.write_queue_count if access == "write" else placement.read_queue_count
    if queue.queue_id >= count:
        raise Invalid(
            f"topic {topic.name} has no {access} queue {queue.queue_id} on {queue.enode}; "
            + (f"expected 0 to {count - 1}; " if count else "")
            + f"QueryRoute lists the queues {description}",
            field="queue.queue_id",
        )
