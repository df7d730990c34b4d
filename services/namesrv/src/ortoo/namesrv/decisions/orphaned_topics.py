"""Topics that enodes hold and the directory does not have. Operators list them and adopt them. Pure."""

import dataclasses
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ortoo.common.cluster.names import check_process_name, check_topic_name
from ortoo.common.directory.topic import Permission, Placement
from ortoo.common.errors import Conflict, Invalid, NotFound
from ortoo.common.groups.group_topics import owner_of_name, parent_of_topic
from ortoo.namesrv.decisions.topics import QUEUE_COUNT_MAX, Topic

ORPHANED_TOPICS_MAX = 100_000
"""The maximum number of topics kept of all enodes together; further ones are only counted."""
ORPHANED_TOPICS_PER_ENODE_MAX = 10_000


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic as one enode holds it."""

    topic_id: int
    name: str
    queue_count: int


@dataclass(frozen=True, slots=True)
class OrphanedTopic:
    """A topic on enodes whose directory entry is missing, or lacks one of these enodes or some of the queues."""

    topic_id: int
    name: str
    placements: tuple[Placement, ...]
    conflict: str = ""
    """Why it cannot be adopted, and the remedy; empty = it can be adopted."""


class OrphanedTopics:
    """The last report of each enode about topics that the directory does not have."""

    def __init__(self) -> None:
        """Start without reports."""
        self._reported: dict[str, tuple[Sequence[StoredTopic], int]] = {}
        """By enode: the topics it holds, and the number of further ones."""
        self.version = 0
        """Increases with each different report."""

    def update(self, enode: str, stored: Sequence[StoredTopic], unlisted_count: int) -> None:
        """Replace the report of an enode. `unlisted_count` topics are left out of the report. Errors: Invalid."""
        if not stored and enode not in self._reported:
            return
        check_process_name(enode, "enode.name")
        if len(stored) > ORPHANED_TOPICS_PER_ENODE_MAX:
            raise Invalid(f"{len(stored)} topics; give at most {ORPHANED_TOPICS_PER_ENODE_MAX}", field="unknown_topics")
        for one in stored:
            check_topic_name(one.name, "unknown_topics.name")
            if not one.topic_id or not 1 <= one.queue_count <= QUEUE_COUNT_MAX:
                raise Invalid(
                    f"topic {one.name} has id {one.topic_id} and {one.queue_count} queues; expected an id, and 1 to "
                    f"{QUEUE_COUNT_MAX} queues",
                    field="unknown_topics",
                )
        before = self._reported.pop(enode, None)
        if stored:
            kept = stored[: max(0, ORPHANED_TOPICS_MAX - sum(len(others) for others, _ in self._reported.values()))]
            self._reported[enode] = kept, unlisted_count + len(stored) - len(kept)
        self.version += self._reported.get(enode) != before

    def snapshot(self) -> "OrphanedTopics":
        """A copy of the reports, for use on another thread."""
        offers = OrphanedTopics()
        offers._reported = dict(self._reported)
        return offers

    def topic_ids(self) -> set[int]:
        """The ids of the reported topics."""
        return {one.topic_id for held, _ in self._reported.values() for one in held}

    @property
    def unlisted_count(self) -> int:
        """The number of topics that are left out of the reports, or were reported beyond the limit."""
        return sum(more for _, more in self._reported.values())

    def list_orphaned(self, topics: Mapping[str, Topic], deleted: Container[int]) -> list[OrphanedTopic]:
        """The reported topics that are neither in `topics` (by name) nor in `deleted` (by id), sorted by name."""
        placed: dict[int, list[Placement]] = defaultdict(list)
        names: dict[int, str] = {}
        for enode, (held, _) in sorted(self._reported.items()):
            for one in held:
                if not _is_registered(one, enode, topics.get(one.name)) and one.topic_id not in deleted:
                    placed[one.topic_id].append(Placement(enode, one.queue_count, one.queue_count))
                    names[one.topic_id] = one.name
        ids: dict[str, list[int]] = defaultdict(list)
        for topic_id, name in names.items():
            ids[name].append(topic_id)
        return [
            OrphanedTopic(topic_id, name, tuple(placed[topic_id]), _conflict_of(name, topic_id, ids[name], topics))
            for name in sorted(ids)
            for topic_id in ids[name]
        ]

    def find(self, name: str, deleted: Container[int]) -> list[OrphanedTopic]:
        """The reported topics called `name`, for a name that the directory does not use; `deleted` ids are left out."""
        if not any(one.name == name for held, _ in self._reported.values() for one in held):
            return []
        return [one for one in self.list_orphaned({}, deleted) if one.name == name]


def _is_registered(stored: StoredTopic, enode: str, known: Topic | None) -> bool:
    """Whether `known` is the stored topic, and has at least its number of queues on the enode."""
    placement = known.placement(enode) if known is not None and known.topic_id == stored.topic_id else None
    return placement is not None and placement.read_queue_count >= stored.queue_count


def _conflict_of(name: str, topic_id: int, ids: Sequence[int], topics: Mapping[str, Topic]) -> str:
    known = topics.get(name)
    if known is not None and known.topic_id != topic_id:
        return (
            f"another topic {name} exists, with id {known.topic_id:#x}; delete that topic "
            f"(`ortoo topic delete {name}`; it can be restored), then adopt the topic with id {topic_id:#x}"
        )
    if known is None and len(ids) > 1:
        others = ", ".join(f"{one:#x}" for one in sorted(ids))
        return (
            f"enodes offer several topics {name}, with ids {others}; only one topic can have the name: stop the enodes "
            "of the other topics"
        )
    return ""


def check_not_orphaned(name: str, orphaned: Iterable[OrphanedTopic]) -> None:
    """Refuse to create a topic that enodes already hold. Errors: Conflict."""
    for one in orphaned:
        where = ", ".join(placement.enode for placement in one.placements)
        raise Conflict(
            f"a topic {name} with its messages is stored on {where}, from an earlier directory. Adopt it with `ortoo "
            f"topic adopt {name}`, or create a second topic of this name with ignore_offers",
            field="name",
        )


def select_named(names: Sequence[str], orphaned: Sequence[OrphanedTopic]) -> list[OrphanedTopic]:
    """The topics called `names`. Errors: NotFound for an unknown name, Conflict for a topic that cannot be adopted."""
    found = []
    for number, name in enumerate(names):
        mine = [one for one in orphaned if one.name == name]
        if not mine:
            raise NotFound(
                f"no enode offers a topic {name!r}; `ortoo topic offered` shows the offered topics",
                field=f"names[{number}]",
            )
        for one in mine:
            if one.conflict:
                raise Conflict(f"topic {name} cannot be adopted: {one.conflict}", field=f"names[{number}]")
        found += mine
    return found


def adopted_topic(orphaned: OrphanedTopic, existing: Topic | None, *, version: int, now_ms: int) -> Topic:
    """The directory's entry for an adopted topic, with the reported queues, readable and writable."""
    if existing is None:
        # Enodes know neither parents nor groups.
        parent, owner = parent_of_topic(orphaned.name) or "", owner_of_name(orphaned.name)
        return Topic(
            orphaned.name,
            orphaned.topic_id,
            version,
            Permission.READ_WRITE,
            orphaned.placements,
            now_ms,
            parent=parent,
            owner_group=owner.group,
            owner_kind=owner.kind,
        )
    by_enode = {placement.enode: placement for placement in existing.placements}
    for one in orphaned.placements:
        before = by_enode.get(one.enode)
        if before is not None and before.write_queue_count < before.read_queue_count:  # an operator drains these queues
            one = dataclasses.replace(before, read_queue_count=one.read_queue_count)
        by_enode[one.enode] = one
    placements = tuple(by_enode[enode] for enode in sorted(by_enode))
    return dataclasses.replace(existing, version=version, placements=placements)
