"""Decisions about topics: validated creations and changes, as pure functions of the current state."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ortoo.common.cluster.names import check_process_name, check_topic_name
from ortoo.common.directory.topic import MessageType, Permission, Placement
from ortoo.common.errors import AlreadyExists, Conflict, Invalid, NotFound, Overloaded
from ortoo.common.groups.group_topics import OwnedTopicKind, TopicOwner, parent_of_topic
from ortoo.common.logs.counts import counted
from ortoo.namesrv.decisions.placements import PlacementSet, PublishOrder, check_publish_order
from ortoo.namesrv.decisions.topic_owners import check_permission, owner_of

QUEUE_COUNT_MAX = 1024
QUEUE_COUNT_DEFAULT = 4
TOPICS_MAX = 100_000
"""The maximum number of topics that store no lite topic."""
LITE_TOPICS_MAX = 1_000_000
LITE_TOPICS_OF_PARENT_MAX = 10_000
"""The number is limited because a group without subscriptions to lite topics receives from all of a parent."""
PLACEMENTS_MAX = 1_000
LOST_SHOWN_MAX = 10
"""Maximum number of names in a refusal to forget an enode."""
LITE_TTL_MIN_MS = 60_000
LITE_TTL_MAX_MS = 365 * 86_400_000


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with its placements, which are sorted by enode."""

    name: str
    topic_id: int
    version: int
    permission: Permission
    placements: tuple[Placement, ...]
    created_at_ms: int
    message_type: MessageType = MessageType.UNSPECIFIED
    publish_order: PublishOrder = ()
    lite_ttl_ms: int = 0
    """For a parent of lite topics, the time without a message after which a lite topic is deleted; 0 = never."""
    parent: str = ""
    """The parent, if the topic stores a lite topic; empty = it stores none."""
    owner_group: str = ""
    """The group to which a retry topic or dead-letter topic belongs; empty = none."""
    owner_kind: OwnedTopicKind = OwnedTopicKind.UNSPECIFIED

    def __post_init__(self) -> None:
        """Share the placements with other topics."""
        object.__setattr__(self, "placements", PlacementSet.of(self.placements))

    @property
    def placement_set(self) -> PlacementSet:
        """The placements, which many topics may share."""
        return PlacementSet.of(self.placements)

    @property
    def placement_set_id(self) -> int:
        """The id of the placements; 0 = the topic has none."""
        return self.placement_set.set_id

    def placement(self, enode: str) -> Placement | None:
        """The queues of the topic on one enode; None if it has none there."""
        return next((placement for placement in self.placements if placement.enode == enode), None)

    @property
    def read_queue_count(self) -> int:
        """The largest number of read queues on one enode."""
        return max(p.read_queue_count for p in self.placements)

    @property
    def write_queue_count(self) -> int:
        """The largest number of write queues on one enode."""
        return max(p.write_queue_count for p in self.placements)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A request to create a topic. 0 and UNSPECIFIED mean the default; no enodes means all live enodes."""

    name: str
    read_queue_count: int = 0
    write_queue_count: int = 0
    permission: Permission = Permission.UNSPECIFIED
    enodes: tuple[str, ...] = ()
    message_type: MessageType = MessageType.UNSPECIFIED
    ignore_orphaned: bool = False
    """Create it although enodes hold a topic of this name that is not in the directory."""
    lite_ttl_ms: int = 0
    parent: str = ""
    """The parent of a lite topic; empty = the parent in the name, if it exists."""
    owner_group: str = ""
    """The group of a retry topic or dead-letter topic; empty = the group in the name."""
    owner_kind: OwnedTopicKind = OwnedTopicKind.UNSPECIFIED


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A request to change a topic; 0, UNSPECIFIED and None leave a property unchanged."""

    name: str
    read_queue_count: int = 0
    write_queue_count: int = 0
    permission: Permission = Permission.UNSPECIFIED
    add_enodes: tuple[str, ...] = ()
    publish_order: PublishOrder | None = None
    lite_ttl_ms: int | None = None


def with_defaults(request: NewTopic) -> NewTopic:
    """Check a request for a topic and fill in its defaults. Errors: Invalid, naming the field."""
    check_topic_name(request.name, "name")
    read = request.read_queue_count or QUEUE_COUNT_DEFAULT
    write = request.write_queue_count or read
    _check_counts(read, write)
    _check_enodes(request.enodes, "enodes")
    _check_lite_ttl(request.lite_ttl_ms, request.message_type)
    permission = request.permission or Permission.READ_WRITE
    given = TopicOwner(request.owner_group, request.owner_kind)
    owner = owner_of(request.name, given, permission, is_typed=bool(request.message_type))
    return dataclasses.replace(
        request,
        read_queue_count=read,
        write_queue_count=write,
        permission=permission,
        owner_group=owner.group,
        owner_kind=owner.kind,
    )


def create_topic(
    request: NewTopic,
    existing: Topic | None,
    enodes: Mapping[str, bool],
    *,
    parent: str,
    topic_id: int,
    version: int,
    now_ms: int,
) -> Topic:
    """The topic to store for `request`, whose defaults are filled in; `existing` if it has the requested properties.

    `enodes` has the liveness of each registered enode, and `parent` is the result of `parent_of`. The caller checks the
    number of topics. Errors: AlreadyExists if `existing` differs, NotFound, Conflict.
    """
    if existing is not None:
        _check_unchanged(request, existing)
        return existing
    chosen = choose_enodes(request.name, request.enodes, enodes)
    placements = tuple(Placement(enode, request.read_queue_count, request.write_queue_count) for enode in chosen)
    return Topic(
        request.name,
        topic_id,
        version,
        request.permission,
        placements,
        now_ms,
        request.message_type,
        lite_ttl_ms=request.lite_ttl_ms,
        parent=parent,
        owner_group=request.owner_group,
        owner_kind=request.owner_kind,
    )


def named_parent(request: NewTopic) -> str:
    """The parent that a request for a topic names; empty if it names none."""
    return request.parent or parent_of_topic(request.name) or ""


def parent_of(request: NewTopic, parent: Topic | None) -> str:
    """The parent to store for a new topic; empty if it stores no lite topic. `parent` is the topic `named_parent`.

    A snode of an earlier version names the parent only in the name of the topic. Errors: Invalid, NotFound, for a
    parent that the request gives.
    """
    name, is_parent = named_parent(request), parent is not None and parent.message_type is MessageType.LITE
    if not request.parent:
        return name if is_parent else ""
    if parent_of_topic(request.name) != name:
        raise Invalid(
            f"topic {request.name!r} is no lite topic of {name!r}; expected a name %LMQ%|{name}|LITE", field="parent"
        )
    if parent is None:
        raise NotFound(f"there is no topic {name!r}; create it with CreateTopic, or fix the name", field="parent")
    if not is_parent:
        raise Invalid(f"topic {name} has no lite topics; name a topic with MESSAGE_TYPE_LITE", field="parent")
    return name


def check_lite_counts(parent: str, of_parent: int, total: int) -> None:
    """Refuse a lite topic if there are too many, with it, of its parent or of all. Errors: Overloaded."""
    if of_parent > LITE_TOPICS_OF_PARENT_MAX:
        raise Overloaded(
            f"topic {parent} has {LITE_TOPICS_OF_PARENT_MAX} lite topics, the maximum; delete unused ones, "
            "set lite_ttl_ms to let unused ones expire, or use another parent",
            field="parent",
        )
    if total > LITE_TOPICS_MAX:
        raise Overloaded(
            f"{LITE_TOPICS_MAX} lite topics are the maximum, not {total}; delete unused ones", field="parent"
        )


def check_count(count: int) -> None:
    """Refuse a `count` of topics above the maximum. Errors: Overloaded."""
    if count > TOPICS_MAX:
        raise Overloaded(f"{TOPICS_MAX} topics are the maximum, not {count}; delete unused topics")


def choose_enodes(topic: str, named: Collection[str], enodes: Mapping[str, bool], field: str = "enodes") -> list[str]:
    """The enodes for a new topic, sorted: the `named` ones, or all live ones. Errors: NotFound, Conflict."""
    alive = sorted(name for name, lives in enodes.items() if lives)
    known = ", ".join(alive) or "none"
    for name in sorted(named):
        if name not in enodes:
            raise NotFound(
                f"no enode {name!r} has registered; start it, or correct the name. Live enodes: {known}", field=field
            )
        if not enodes[name]:
            raise Conflict(
                f"enode {name!r} is not alive; start it, or name other enodes. Live enodes: {known}", field=field
            )
    if not named and not alive:
        raise Conflict(
            f"topic {topic!r} cannot be placed: no enode is alive. Start an enode (it registers within seconds), then "
            "retry",
            retry_after_ms=1000,
        )
    return sorted(named) or alive


def change_topic(request: TopicChange, existing: Topic | None, enodes: Mapping[str, bool], *, version: int) -> Topic:
    """The topic to store for `request`, or `existing` if nothing changes. Errors: NotFound, Invalid, Conflict."""
    topic = require_topic(request.name, existing)
    if request.permission not in (Permission.UNSPECIFIED, topic.permission):
        check_permission(topic.name, TopicOwner(topic.owner_group, topic.owner_kind), request.permission)
    _check_enodes(request.add_enodes, "add_enodes")
    read = request.read_queue_count or topic.read_queue_count
    write = request.write_queue_count or min(topic.write_queue_count, read)
    if read < topic.read_queue_count:
        raise Invalid(
            f"topic {topic.name} has {topic.read_queue_count} read queues with their messages; with {read}, some "
            "messages would be lost. Instead lower write_queue_count, so that the other queues are drained",
            field="read_queue_count",
        )
    _check_counts(read, write)
    here = {p.enode for p in topic.placements}
    added = [name for name in request.add_enodes if name not in here]
    if added:
        here.update(choose_enodes(topic.name, added, enodes, "add_enodes"))
    if len(here) > PLACEMENTS_MAX:
        raise Overloaded(
            f"a topic may be placed on {PLACEMENTS_MAX} enodes, not {len(here)}; add fewer", field="add_enodes"
        )
    changed = dataclasses.replace(
        topic,
        permission=request.permission or topic.permission,
        placements=tuple(Placement(enode, read, write) for enode in sorted(here)),
        publish_order=topic.publish_order if request.publish_order is None else request.publish_order,
        lite_ttl_ms=topic.lite_ttl_ms if request.lite_ttl_ms is None else request.lite_ttl_ms,
    )
    _check_lite_ttl(changed.lite_ttl_ms, topic.message_type)
    check_publish_order(changed.publish_order, {p.enode: p.write_queue_count for p in changed.placements})
    return topic if changed == topic else dataclasses.replace(changed, version=version)


@dataclass(frozen=True, slots=True)
class ForgottenEnode:
    """The change of the directory when an enode is forgotten: the topics that had queues on it."""

    reduced_topics: tuple[str, ...] = ()
    """Topics that keep their queues on other enodes."""
    moved_topics: tuple[str, ...] = ()
    """Topics that had queues on no other enode, and get empty queues on the live enodes."""
    lost_deleted_topics: tuple[str, ...] = ()
    """Deleted topics that only this enode had, and that can no longer be restored."""
    version: int = 0
    """The version of the directory after the change; 0 = nothing was changed."""


def check_forgettable(enode: str, placed: Collection[Topic], deleted: Collection[Topic], replicas: str) -> None:
    """Refuse to forget an enode that has messages of its own.

    `placed` are the topics with queues on it, `deleted` those that can be restored, `replicas` the disks with its log.
    Errors: Conflict, naming the topics.
    """
    only = [topic.name for topic in placed if len(topic.placements) == 1]
    used = [topic.name for topic in placed if len(topic.placements) > 1 and not is_drained(topic, enode)]
    restorable = [topic.name for topic in deleted if len(topic.placements) == 1]
    held = [
        f"{text}: {', '.join(names[:LOST_SHOWN_MAX])}{', ...' if len(names) > LOST_SHOWN_MAX else ''}"
        for text, names in (
            (f"all messages of {counted(len(only), 'topic')}", only),
            (f"its queues of {counted(len(used), 'topic')}, not drained", used),
            (f"{counted(len(restorable), 'deleted topic')} that can be restored", restorable),
        )
        if names
    ]
    if held:
        disks = f" Its log is on {replicas}." if replicas else ""
        raise Conflict(
            f"only enode {enode} has {'; '.join(held)}.{disks} Start it again with its volume. If it is permanently "
            f"lost, `ortoo enode forget {enode} --lose` forgets it with these messages",
            field="lose",
        )


def is_drained(topic: Topic, enode: str) -> bool:
    """Whether an operator has taken the queues on an enode from the producers of a topic."""
    return bool(topic.publish_order) and all(place.enode != enode for place in topic.publish_order)


def without_enode(topic: Topic, enode: str, others: Sequence[str], *, version: int) -> Topic:
    """The topic without its queues on an enode. If no queues are left, it gets empty ones on `others`."""
    left = tuple(place for place in topic.placements if place.enode != enode)
    empty = tuple(Placement(name, topic.read_queue_count, topic.write_queue_count) for name in sorted(others))
    order = tuple(place for place in topic.publish_order if place.enode != enode)
    return dataclasses.replace(topic, placements=left or empty, publish_order=order, version=version)


def require_topic(name: str, existing: Topic | None) -> Topic:
    """Check that the topic of a request exists; returns `existing`. Errors: Invalid, NotFound."""
    check_topic_name(name, "name")
    if existing is None:
        raise NotFound(f"there is no topic {name!r}; create it with CreateTopic, or fix the name", field="name")
    return existing


def _check_counts(read: int, write: int) -> None:
    for field, count in (("read_queue_count", read), ("write_queue_count", write)):
        if not 1 <= count <= QUEUE_COUNT_MAX:
            raise Invalid(f"{count} queues; give 1 to {QUEUE_COUNT_MAX}", field=field)
    if write > read:
        raise Invalid(
            f"{write} write queues but {read} read queues, so that messages in the surplus write queues could never "
            "be read; give at most read_queue_count",
            field="write_queue_count",
        )


def _check_lite_ttl(lite_ttl_ms: int, message_type: MessageType) -> None:
    if lite_ttl_ms and message_type is not MessageType.LITE:
        what = f"{lite_ttl_ms}; only a topic of type lite has lite topics, and this one is {message_type.name.lower()}"
        raise Invalid(what, field="lite_ttl_ms")
    if lite_ttl_ms and not LITE_TTL_MIN_MS <= lite_ttl_ms <= LITE_TTL_MAX_MS:
        what = f"{lite_ttl_ms}; give {LITE_TTL_MIN_MS} to {LITE_TTL_MAX_MS}, or 0 for lite topics that never end"
        raise Invalid(what, field="lite_ttl_ms")


def _check_enodes(names: Sequence[str], field: str) -> None:
    if len(names) > PLACEMENTS_MAX:
        raise Invalid(f"{len(names)} enodes; give at most {PLACEMENTS_MAX}", field=field)
    for name in names:
        check_process_name(name, field)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Invalid(f"enode {twice!r} is named twice; name each once", field=field)


def _check_unchanged(request: NewTopic, existing: Topic) -> None:
    """Refuse a request that differs from the existing topic; no enodes = any enodes. Errors: AlreadyExists."""
    asked = {
        "permission": (request.permission.name, existing.permission.name),
        "message_type": (request.message_type.name, existing.message_type.name),
        "read_queue_count": (request.read_queue_count, existing.read_queue_count),
        "write_queue_count": (request.write_queue_count, existing.write_queue_count),
        "lite_ttl_ms": (request.lite_ttl_ms, existing.lite_ttl_ms),
    }
    if request.enodes:
        asked["enodes"] = (", ".join(sorted(request.enodes)), ", ".join(p.enode for p in existing.placements))
    for field, (wanted, has) in asked.items():
        if wanted != has:
            raise AlreadyExists(
                f"topic {existing.name} exists with {field} {has}, not {wanted}; "
                "change it with UpdateTopic, or request the existing value",
                field=field,
            )
