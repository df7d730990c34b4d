"""The tables of the directory, their rows and columns, as stored. Only SQL that all supported databases accept.

A column for a field of a value has the name of the field: `row_of` and `Topic(**row._mapping)` depend on it.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from enum import IntEnum
from typing import Any, TypeVar

import sqlalchemy as sa

from ortoo.common.directory.group import DEFAULTS, Group
from ortoo.common.directory.topic import MessageType, Permission
from ortoo.common.groups.group_topics import OwnedTopicKind, owner_of_name, parent_of_topic
from ortoo.common.groups.retry_policy import RetryPolicy
from ortoo.common.grpc.enum_values import known_or
from ortoo.namesrv.decisions.deletions import TopicDeletion
from ortoo.namesrv.decisions.placements import PlacementSet, format_order, parse_order
from ortoo.namesrv.decisions.replicas import ReplicaId
from ortoo.namesrv.decisions.topics import Topic

T = TypeVar("T")
SCHEMA_VERSION = 1
"""The schema version in databases from before there were migrations."""


class EncodedColumn(sa.TypeDecorator[Any]):
    """A column type that converts each value to a stored form, whose column type is `kept_as`."""

    impl = sa.types.NullType
    cache_ok = True

    def __init__(
        self, kept_as: sa.types.TypeEngine[Any], written: Callable[[Any], Any], read: Callable[[Any], Any]
    ) -> None:
        """`written` converts a value to its stored form, `read` converts it back."""
        super().__init__()
        self.kept_as = kept_as
        self.written = written
        self.read = read

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        """The database's type for the stored form."""
        return dialect.type_descriptor(self.kept_as)

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> Any:
        """Convert a value to its stored form."""
        return self.written(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:
        """Convert a stored form to its value."""
        return self.read(value)


def _signed(topic_id: int) -> int:
    return topic_id - (1 << 64) if topic_id >= 1 << 63 else topic_id


def _unsigned(kept: int) -> int:
    return kept % (1 << 64)


def _enum_reader(kind: type[IntEnum]) -> Callable[[int], IntEnum]:
    """A reader of enumeration numbers. A number of a newer name server is read as unspecified and stays stored."""
    return lambda number: known_or(kind, number, kind(0))


def _replicas_to_text(replicas: tuple[ReplicaId, ...]) -> str:
    return " ".join(f"{one.number}:{one.disk}" for one in replicas)


def _replicas_of_text(text: str) -> tuple[ReplicaId, ...]:
    pairs = (one.partition(":") for one in text.split())
    return tuple(ReplicaId(int(number), disk) for number, _, disk in pairs)


ID64 = EncodedColumn(sa.BigInteger(), _signed, _unsigned)
"""Unsigned 64-bit ids, since the integers of databases have a sign."""
RETRY = EncodedColumn(sa.String(1_024), RetryPolicy.text, RetryPolicy.read)

TOPIC_DELETION = ("deleted_at_ms", "due_at_ms", "is_due")
"""The columns of a deleted topic that a topic does not have."""
IDS_IN_STATEMENT = 500
COLUMN_NAMES = {"auto_created": "by_use"}
"""Fields whose column has another name."""
FIELD_NAMES = {column: field for field, column in COLUMN_NAMES.items()}

metadata = sa.MetaData()

directory = sa.Table(
    "directory",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),  # always 1
    sa.Column("schema_version", sa.Integer, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    # Since revision 0008.
    sa.Column("directory_id", sa.String(36), nullable=False, server_default=""),
    # Since revision 0009: whether clients may have handles from before there were keys.
    sa.Column("unsigned_handles", sa.Boolean, nullable=False, server_default=sa.false()),
)


def _topic_columns() -> list[sa.Column[Any]]:
    """The columns of a topic except its name and id."""
    return [
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("permission", EncodedColumn(sa.Integer(), int, _enum_reader(Permission)), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column(
            "message_type",
            EncodedColumn(sa.Integer(), int, _enum_reader(MessageType)),
            nullable=False,
            server_default="0",
        ),
        sa.Column(
            "publish_order", EncodedColumn(sa.Text(), format_order, parse_order), nullable=False, server_default=""
        ),
        # Since revision 0012.
        sa.Column("lite_ttl_ms", sa.BigInteger, nullable=False, server_default="0"),
        # Since revision 0015; 0 = no placements.
        sa.Column("placement_set_id", ID64, nullable=False, server_default="0"),
        # Since revision 0016; NULL = written by an earlier version, which has the parent only in the name.
        sa.Column("parent", sa.String(127)),
        # Since revision 0017; NULL = written by an earlier version, which has the group only in the name.
        sa.Column("owner_group", sa.String(127)),
        sa.Column("owner_kind", EncodedColumn(sa.Integer(), int, _enum_reader(OwnedTopicKind)), server_default="0"),
    ]


topics = sa.Table(
    "topics",
    metadata,
    sa.Column("name", sa.String(127), primary_key=True),
    sa.Column("topic_id", ID64, nullable=False, unique=True),
    *_topic_columns(),
)
deleted_topics = sa.Table(
    "deleted_topics",
    metadata,
    sa.Column("topic_id", ID64, primary_key=True, autoincrement=False),
    sa.Column("name", sa.String(127), nullable=False),
    *_topic_columns(),
    sa.Column("deleted_at_ms", sa.BigInteger, nullable=False),
    sa.Column("due_at_ms", sa.BigInteger, nullable=False),
    sa.Column("is_due", sa.Boolean, nullable=False, server_default=sa.false()),
)
unconfirmed_deletions = sa.Table(
    "unconfirmed_deletions",
    metadata,
    sa.Column("topic_id", ID64, primary_key=True, autoincrement=False),
    sa.Column("due_at_ms", sa.BigInteger, nullable=False, index=True),
)
"""Due deletions that are no longer reported, although an enode may not have carried them out. Since revision 0018."""
placement_sets = sa.Table(
    "placement_sets",
    metadata,
    sa.Column("set_id", ID64, primary_key=True, autoincrement=False),
    sa.Column("enode", sa.String(63), primary_key=True),
    sa.Column("read_queue_count", sa.Integer, nullable=False),
    sa.Column("write_queue_count", sa.Integer, nullable=False),
)
"""The placements of topics. Topics with equal placements name the same set; a set never changes."""


_GROUP_TYPES: Mapping[type, tuple[sa.types.TypeEngine[Any], Callable[[Any], Any]]] = {
    bool: (sa.Boolean(), lambda value: sa.true() if value else sa.false()),
    int: (sa.BigInteger(), str),
    RetryPolicy: (RETRY, RetryPolicy.text),
}
"""For each class of a group's settings: the type of its column, and the default as SQL."""
_OF_32_BITS = ("attempts_max", "in_flight_max")
"""The columns of numbers that are no BIGINT, since the revisions 0003 and 0007."""


def _group_columns() -> list[sa.Column[Any]]:
    """The columns of a group, one for each field of `Group`."""
    columns: list[sa.Column[Any]] = [sa.Column("name", sa.String(120), primary_key=True)]
    for name in [field.name for field in fields(Group)][1:]:
        default = getattr(DEFAULTS, name)
        kind, as_sql = _GROUP_TYPES[type(default)]
        stored = sa.Integer() if name in _OF_32_BITS else kind
        columns.append(sa.Column(COLUMN_NAMES.get(name, name), stored, nullable=False, server_default=as_sql(default)))
    return columns


groups = sa.Table("groups", metadata, *_group_columns())
deleted_groups = sa.Table(
    "deleted_groups",
    metadata,
    *_group_columns(),
    sa.Column("deleted_at_ms", sa.BigInteger, nullable=False),
    sa.Column("due_at_ms", sa.BigInteger, nullable=False),
    sa.Column("due_version", sa.BigInteger, nullable=False, server_default="0"),
)

rights = sa.Table(
    "rights",
    metadata,
    sa.Column("resource", sa.String(255), primary_key=True),
    sa.Column("owner", sa.String(255), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("until_ms", sa.BigInteger, nullable=False),
)
users = sa.Table(
    "users",
    metadata,
    sa.Column("access_key", sa.String(127), primary_key=True),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    # Since revision 0009, in the form of `Encryption`.
    sa.Column("kept_secret", sa.Text, nullable=False, server_default=""),
)
handle_keys = sa.Table(
    "handle_keys",
    metadata,
    sa.Column("key_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    # The key in hexadecimal, in the form of `Encryption`.
    sa.Column("kept_secret", sa.Text, nullable=False),
)

proposals = sa.Table(
    "proposals",
    metadata,
    sa.Column("enode", sa.String(63), primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("disk", sa.String(255), nullable=False),
)

stores = sa.Table(
    "stores",
    metadata,
    sa.Column("enode", sa.String(63), primary_key=True),
    sa.Column("store_id", sa.String(255), nullable=False),
    # Since revision 0013, each as number:disk.
    sa.Column(
        "replicas", EncodedColumn(sa.Text(), _replicas_to_text, _replicas_of_text), nullable=False, server_default=""
    ),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("accepted", sa.String(255), nullable=False, server_default=""),
    # Since revision 0014, both.
    sa.Column("log_start", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("log_end", sa.BigInteger, nullable=False, server_default="0"),
)
"""The registered store of each enode."""


def row_of(table: sa.Table, value: object, **given: object) -> dict[str, object]:
    """A row for `table`: the value of each column is that in `given`, or else the field of `value` with its name."""
    return {
        c.name: given[c.name] if c.name in given else getattr(value, FIELD_NAMES.get(c.name, c.name))
        for c in table.columns
    }


def in_batches(ids: Collection[T]) -> Iterator[list[T]]:
    """Split ids or names into lists, each short enough for one SQL statement."""
    listed = list(ids)
    return (listed[start : start + IDS_IN_STATEMENT] for start in range(0, len(listed), IDS_IN_STATEMENT))


def deletions_of(rows: Iterable[Any], sets: Mapping[int, PlacementSet]) -> list[TopicDeletion]:
    """Deleted topics from their rows."""
    found = []
    for row in rows:
        fields = dict(row._mapping)
        own = {name: fields.pop(name) for name in TOPIC_DELETION}
        found.append(TopicDeletion(_topic_from(fields, sets), **own))
    return found


def topic_of(row: sa.Row[tuple[object, ...]], sets: Mapping[int, PlacementSet]) -> Topic:
    """A topic from its row."""
    return _topic_from(dict(row._mapping), sets)


def _topic_from(fields: dict[Any, Any], sets: Mapping[int, PlacementSet]) -> Topic:
    """A topic from its columns."""
    set_id = fields.pop("placement_set_id")
    if fields["parent"] is None:
        fields["parent"] = parent_of_topic(fields["name"]) or ""
    fields["parent"] = sys.intern(fields["parent"])
    if fields["owner_group"] is None:
        fields["owner_group"], fields["owner_kind"] = owner_of_name(fields["name"])
    return Topic(**fields, placements=sets[set_id])


def group_of(columns: Mapping[Any, Any]) -> Group:
    """A group from its columns."""
    return Group(**{FIELD_NAMES.get(name, name): value for name, value in columns.items()})


def is_known(row: Any, known: Mapping[int, TopicDeletion]) -> bool:
    """Whether a deleted topic is known as in its row. The placements of one that is due do not matter."""
    topic_id, version, *times, placement_set_id = row
    one = known.get(topic_id)
    if one is None or [one.deleted_at_ms, one.due_at_ms, one.is_due] != times:
        return False
    return one.topic.version == version and (one.is_due or one.topic.placement_set_id == placement_set_id)
