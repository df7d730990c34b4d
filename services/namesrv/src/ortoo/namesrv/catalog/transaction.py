"""One change of the stored directory: its reads and writes. Runs on the catalog's thread."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from ortoo.common.directory.group import Group
from ortoo.common.directory.topic import Permission, Placement
from ortoo.common.groups.handle_seal import HandleKey
from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.encryption import Encryption
from ortoo.namesrv.catalog.tables import TOPIC_DELETION, deletions_of, group_of, in_batches, is_known, row_of, topic_of
from ortoo.namesrv.decisions.deletions import (
    DELETIONS_RETENTION_MS,
    LOW_BITS,
    UNCONFIRMED_MAX,
    GroupDeletion,
    RowSums,
    StoredChanges,
    TopicDeletion,
)
from ortoo.namesrv.decisions.placements import PlacementSet
from ortoo.namesrv.decisions.routes.route_changes import StoredDirectory
from ortoo.namesrv.decisions.topics import Topic

GROUP_DELETION = ("deleted_at_ms", "due_at_ms", "due_version")
"""The columns of a deleted group that a group does not have."""
REMOVED_AT_ONCE = 10_000
"""The maximum number of forgotten deletions that a change removes, unless it adds more."""


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The number of rows of some tables after the transaction that stored a version."""

    version: int = -1
    counts: Mapping[str, int] = field(default_factory=dict)


class UnconfirmedDeletions:
    """The forgotten deletions that an enode may not have carried out. Each is final, because it was reported as due."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def add(self, deletions: Collection[TopicDeletion], now_ms: int) -> None:
        """Store deletions. Those that were due very long ago are removed, and the earliest if there are too many.

        A change removes a limited number of them, because millions may become old at the same time.
        """
        table = tables.unconfirmed_deletions
        self.remove([one.topic_id for one in deletions])
        if deletions:
            self._connection.execute(sa.insert(table), [row_of(table, one) for one in deletions])
            by_time = sa.select(table.c.due_at_ms).order_by(table.c.due_at_ms.desc())
            beyond_ms = self._connection.execute(by_time.offset(UNCONFIRMED_MAX).limit(1)).scalar_one_or_none() or 0
            removed_ms = max(beyond_ms, now_ms - DELETIONS_RETENTION_MS)
            old = sa.select(table.c.topic_id).where(table.c.due_at_ms <= removed_ms).order_by(table.c.due_at_ms)
            first = old.limit(max(REMOVED_AT_ONCE, len(deletions)))
            self._connection.execute(sa.delete(table).where(table.c.topic_id.in_(first)))

    def remove(self, topic_ids: Collection[int]) -> None:
        """Remove the deletions of these topics."""
        table = tables.unconfirmed_deletions
        for ids in in_batches(topic_ids):
            self._connection.execute(sa.delete(table).where(table.c.topic_id.in_(ids)))

    def find(self, topic_ids: Collection[int]) -> set[int]:
        """Those of the ids whose deletion is stored here."""
        column = tables.unconfirmed_deletions.c.topic_id
        parts = (sa.select(column).where(column.in_(ids)) for ids in in_batches(topic_ids))
        return {topic_id for part in parts for topic_id in self._connection.execute(part).scalars()}


class CatalogTransaction:
    """One open transaction on the directory. The caller commits all its changes, or rolls all of them back."""

    def __init__(self, connection: sa.Connection, encryption: Encryption | None = None) -> None:
        self._connection = connection
        self._encryption = encryption or Encryption()
        self.unconfirmed = UnconfirmedDeletions(connection)
        """The due deletions that were forgotten before all enodes had carried them out."""
        self.version = 0
        self.counts: dict[str, int] = {}
        """The number of rows of each table that was counted, including the changes of this transaction."""

    def begin_version(self, above_version: int = 0, known: RowCounts = RowCounts()) -> None:
        """Set this transaction's version to one above the stored version and above `above_version`.

        `above_version` is the last version that was read before the database was restored. The row with the version
        stays locked until the commit, so that the changes of all name servers run one after another. The counts in
        `known` are used if no transaction was committed after them.
        """
        table = tables.directory
        is_behind = table.c.version < above_version
        version = sa.case((is_behind, sa.literal(above_version, sa.BigInteger())), else_=table.c.version) + 1
        self._connection.execute(sa.update(table).values(version=version))
        self.version = self._connection.execute(sa.select(table.c.version)).scalar_one()
        self.counts = dict(known.counts) if not above_version and known.version == self.version - 1 else {}

    def stored_version(self) -> int:
        """The version of the stored contents."""
        return int(self._connection.execute(sa.select(tables.directory.c.version)).scalar_one())

    def now_ms(self, own_ms: int) -> int:
        """The current time for irreversible decisions, in milliseconds since 1970-01-01 UTC.

        With PostgreSQL it is the database's time, because the clocks of name servers may differ. With a database file
        it is `own_ms`, the time of the only name server.
        """
        return database_now_ms(self._connection) if self._connection.dialect.name == "postgresql" else own_ms

    def load_all(self) -> StoredDirectory:
        """Read the whole directory."""
        sets = self._placement_sets()
        topics = self._connection.execute(sa.select(tables.topics)).all()
        groups = self._connection.execute(sa.select(tables.groups)).all()
        return StoredDirectory(
            self.stored_version(),
            tuple(topic_of(row, sets) for row in topics),
            tuple(group_of(row._mapping) for row in groups),
            tuple(deletions_of(self._connection.execute(sa.select(tables.deleted_topics)).all(), sets)),
            self._connection.execute(sa.select(tables.directory.c.directory_id)).scalar_one(),
            self.handle_keys(),
            self._connection.execute(sa.select(tables.directory.c.unsigned_handles)).scalar_one(),
            tuple(self.deleted_groups()),
        )

    def load_since(self, version: int, known: Mapping[int, TopicDeletion]) -> StoredChanges:
        """Read the topics and groups that were changed after a version, and the deletions.

        Deleted topics are left out if they are `known`, because there may be very many.
        """
        changed = sa.select(tables.topics).where(tables.topics.c.version > version)
        topics = self._connection.execute(changed).all()
        changed = sa.select(tables.groups).where(tables.groups.c.version > version)
        groups = self._connection.execute(changed).all()
        sets = self._placement_sets({row.placement_set_id for row in topics})
        return StoredChanges(
            self.stored_version(),
            tuple(topic_of(row, sets) for row in topics),
            tuple(group_of(row._mapping) for row in groups),
            tuple(self._changed_topic_deletions(known)),
            tuple(self.deleted_groups()),
            self.handle_keys(),
            RowSums(*self._sums(tables.topics, "topic_id"), *self._sums(tables.groups, "created_at_ms")),
        )

    def _changed_topic_deletions(self, known: Mapping[int, TopicDeletion]) -> list[TopicDeletion]:
        """The deleted topics that differ from the known ones. Only these rows are read in full."""
        table = tables.deleted_topics.c
        columns = (table.topic_id, table.version, table.deleted_at_ms, table.due_at_ms, table.is_due)
        rows = self._connection.execute(sa.select(*columns, table.placement_set_id))
        return self.deleted_topics_by_id([row.topic_id for row in rows if not is_known(row, known)])

    def _sums(self, table: sa.Table, identity: str) -> Iterator[int]:
        """The number of rows, and the sums of versions and of the low bits of a column, as in `RowSums`."""
        low_bits = sa.type_coerce(table.c[identity], sa.BigInteger()).bitwise_and(sa.literal(LOW_BITS, sa.BigInteger()))
        sums = (sa.func.coalesce(sa.func.sum(one), 0) for one in (table.c.version, low_bits))
        return map(int, self._connection.execute(sa.select(sa.func.count(), *sums).select_from(table)).one())

    def existing_groups(self, names: Collection[str]) -> set[str]:
        """Those of the names that groups have."""
        column = tables.groups.c.name
        parts = (sa.select(column).where(column.in_(part)) for part in in_batches(names))
        return {name for part in parts for name in self._connection.execute(part).scalars()}

    def topic(self, name: str) -> Topic | None:
        """The stored topic with this name, or None."""
        row = self._connection.execute(sa.select(tables.topics).where(tables.topics.c.name == name)).one_or_none()
        if row is None:
            return None
        return topic_of(row, self._placement_sets([row.placement_set_id]))

    def topics_by_id(self, topic_ids: Collection[int]) -> list[Topic]:
        """The stored topics with these ids; missing ones are left out."""
        return self._topics_where(tables.topics.c.topic_id, topic_ids)

    def topics_by_name(self, names: Collection[str]) -> list[Topic]:
        """The stored topics with these names; missing ones are left out."""
        return self._topics_where(tables.topics.c.name, names)

    def lite_topics(self, parent: str) -> list[Topic]:
        """The stored lite topics of a parent, also those without a stored parent. Goes through all topics."""
        column = tables.topics.c.parent
        found = sa.select(tables.topics).where(sa.or_(column == parent, column.is_(None)))
        return [one for one in self._topics_of(self._connection.execute(found).all()) if one.parent == parent]

    def _topics_where(self, column: sa.Column[Any], values: Collection[Any]) -> list[Topic]:
        parts = (sa.select(tables.topics).where(column.in_(part)) for part in in_batches(values))
        return self._topics_of([row for part in parts for row in self._connection.execute(part)])

    def _topics_of(self, rows: Collection[sa.Row[Any]]) -> list[Topic]:
        sets = self._placement_sets({row.placement_set_id for row in rows})
        return [topic_of(row, sets) for row in rows]

    def group(self, name: str) -> Group | None:
        """The stored group with this name, or None."""
        row = self._connection.execute(sa.select(tables.groups).where(tables.groups.c.name == name)).one_or_none()
        return None if row is None else group_of(row._mapping)

    def handle_keys(self) -> tuple[HandleKey, ...]:
        """The keys that seal receipt handles, from the oldest to the newest."""
        table, secret = tables.handle_keys, self._encryption.decrypt
        rows = self._connection.execute(sa.select(table).order_by(table.c.created_at_ms, table.c.key_id))
        return tuple(
            HandleKey(row.key_id, bytes.fromhex(secret(str(row.key_id), row.kept_secret)), row.created_at_ms)
            for row in rows
        )

    def put_handle_keys(self, keys: Collection[HandleKey]) -> None:
        """Store these keys that seal receipt handles, and delete all others."""
        table, stored = tables.handle_keys, {key.key_id for key in self.handle_keys()}
        gone = stored - {key.key_id for key in keys}
        self._connection.execute(sa.delete(table).where(table.c.key_id.in_(gone)))
        for key in keys:
            if key.key_id not in stored:
                kept = self._encryption.encrypt(str(key.key_id), key.secret.hex())
                self._connection.execute(sa.insert(table).values(row_of(table, key, kept_secret=kept)))

    def topic_count(self) -> int:
        """The number of topics."""
        return self._count(tables.topics)

    def group_count(self) -> int:
        """The number of groups."""
        return self._count(tables.groups)

    def put_topic(self, topic: Topic, existing: Topic | None) -> None:
        """Store a topic; `existing` is the stored topic or None. Only changed columns are written."""
        self._upsert(tables.topics, {"name": topic.name}, topic, existing)
        self._add_to_count(tables.topics, int(existing is None))
        if existing is None or existing.placements != topic.placements:
            self._put_placement_set(topic.placement_set)

    def put_deleted_placements(self, topic: Topic) -> None:
        """Store the placements of a deleted topic, for its restoration."""
        self._put_placement_set(topic.placement_set)
        here = tables.deleted_topics.c.topic_id == topic.topic_id
        values = {"placement_set_id": topic.placement_set_id}
        self._connection.execute(sa.update(tables.deleted_topics).where(here).values(values))

    def set_permission(self, topics: Collection[Topic], permission: Permission) -> None:
        """Store the permission of topics, in this transaction's version."""
        table = tables.topics
        for ids in in_batches([topic.topic_id for topic in topics]):
            changed = sa.update(table).where(table.c.topic_id.in_(ids))
            self._connection.execute(changed.values(permission=permission, version=self.version))

    def delete_topics(self, deletions: Collection[TopicDeletion]) -> None:
        """Move topics to the deleted topics."""
        self._delete_rows(tables.topics, [one.topic_id for one in deletions])
        self._add_to_count(tables.topics, -len(deletions))
        self._add_deletions(deletions)

    def report_deletions_again(self, deletions: Collection[TopicDeletion]) -> None:
        """Store deletions of topics that the directory lacks, with the placements at the enodes that hold them."""
        for placements in {one.topic.placement_set for one in deletions}:
            self._put_placement_set(placements)
        self._add_deletions(deletions)

    def _add_deletions(self, deletions: Collection[TopicDeletion]) -> None:
        rows = [
            row_of(tables.deleted_topics, one.topic, **{name: getattr(one, name) for name in TOPIC_DELETION})
            for one in deletions
        ]
        if rows:
            self._connection.execute(sa.insert(tables.deleted_topics), rows)

    def undelete_topic(self, topic: Topic) -> None:
        """Restore a deleted topic."""
        self._delete_rows(tables.deleted_topics, {topic.topic_id})
        self._connection.execute(sa.insert(tables.topics).values(row_of(tables.topics, topic)))
        self._add_to_count(tables.topics, 1)

    def deleted_topics(self, *, name: str | None = None) -> list[TopicDeletion]:
        """The deleted topics that had this name; with None, all deleted topics."""
        table = tables.deleted_topics
        wanted = sa.select(table) if name is None else sa.select(table).where(table.c.name == name)
        return self._deletions_from(self._connection.execute(wanted).all())

    def deleted_topics_by_id(self, topic_ids: Collection[int]) -> list[TopicDeletion]:
        """The deleted topics with these ids; missing ones are left out."""
        table = tables.deleted_topics
        parts = (sa.select(table).where(table.c.topic_id.in_(ids)) for ids in in_batches(topic_ids))
        return self._deletions_from([row for part in parts for row in self._connection.execute(part)])

    def _deletions_from(self, rows: Collection[Any]) -> list[TopicDeletion]:
        return deletions_of(rows, self._placement_sets({row.placement_set_id for row in rows}))

    def restorable_topic_count(self) -> int:
        """The number of deleted topics that can be restored."""
        table = tables.deleted_topics
        counted = sa.select(sa.func.count()).select_from(table).where(table.c.is_due.is_(False))
        return int(self._connection.execute(counted).scalar_one())

    def mark_topics_due(self, due: Collection[int], expired_ids: Collection[int]) -> None:
        """Record that enodes must delete the topics with the ids `due`, and forget the deletions with `expired_ids`."""
        table = tables.deleted_topics
        for ids in in_batches(due):
            self._connection.execute(sa.update(table).where(table.c.topic_id.in_(ids)).values(is_due=True))
        self._delete_rows(table, expired_ids)

    def put_group(self, group: Group, existing: Group | None) -> None:
        """Store a group; `existing` is the stored group or None. Only changed columns are written."""
        self._upsert(tables.groups, {"name": group.name}, group, existing)
        self._add_to_count(tables.groups, int(existing is None))

    def delete_group(self, deletion: GroupDeletion) -> None:
        """Move a group to the deleted groups, in place of an earlier deleted group of the same name."""
        self._connection.execute(sa.delete(tables.groups).where(tables.groups.c.name == deletion.name))
        self._add_to_count(tables.groups, -1)
        self.remove_deleted_groups([deletion.name])
        given = {name: getattr(deletion, name) for name in GROUP_DELETION}
        self._connection.execute(
            sa.insert(tables.deleted_groups).values(row_of(tables.deleted_groups, deletion.group, **given))
        )

    def deleted_groups(self, *, name: str | None = None) -> list[GroupDeletion]:
        """A list with the deleted group of this name, if there is one; with None, all deleted groups."""
        table = tables.deleted_groups
        wanted = sa.select(table) if name is None else sa.select(table).where(table.c.name == name)
        found = []
        for row in self._connection.execute(wanted):
            fields = dict(row._mapping)
            own = {one: fields.pop(one) for one in GROUP_DELETION}
            found.append(GroupDeletion(group_of(fields), **own))
        return found

    def mark_groups_due(self, names: Collection[str]) -> None:
        """Record that enodes must delete the groups `names`, as of this transaction's version."""
        table = tables.deleted_groups
        for part in in_batches(names):
            self._connection.execute(sa.update(table).where(table.c.name.in_(part)).values(due_version=self.version))

    def remove_deleted_groups(self, names: Collection[str]) -> None:
        """Forget the deletions of the groups `names`."""
        for part in in_batches(names):
            self._connection.execute(sa.delete(tables.deleted_groups).where(tables.deleted_groups.c.name.in_(part)))

    def _upsert(self, table: sa.Table, key: Mapping[str, object], value: object, existing: object | None) -> None:
        """Insert a row, or write the columns that differ, so that columns of newer name servers keep their values."""
        row = row_of(table, value, **key)
        if existing is None:
            self._connection.execute(sa.insert(table).values(row))
            return
        before = row_of(table, existing, **key)
        changed = {name: new for name, new in row.items() if new != before[name]}
        if changed:
            here = sa.and_(*(table.c[name] == held for name, held in key.items()))
            self._connection.execute(sa.update(table).where(here).values(changed))

    def _delete_rows(self, table: sa.Table, topic_ids: Collection[int]) -> None:
        for ids in in_batches(topic_ids):
            self._connection.execute(sa.delete(table).where(table.c.topic_id.in_(ids)))

    def _put_placement_set(self, placements: PlacementSet) -> None:
        """Store a set of placements unless it is stored."""
        table, set_id = tables.placement_sets, placements.set_id
        here = sa.select(table.c.set_id).where(table.c.set_id == set_id).limit(1)
        if placements and self._connection.execute(here).one_or_none() is None:
            self._connection.execute(sa.insert(table), [row_of(table, one, set_id=set_id) for one in placements])

    def _placement_sets(self, set_ids: Collection[int] | None = None) -> dict[int, PlacementSet]:
        """The sets of placements with these ids, None = all, by id."""
        placed, table = defaultdict(list), tables.placement_sets
        every = sa.select(table).order_by(table.c.set_id, table.c.enode)
        parts = [every] if set_ids is None else [every.where(table.c.set_id.in_(ids)) for ids in in_batches(set_ids)]
        for statement in parts:
            for set_id, enode, read, write in self._connection.execute(statement):
                placed[set_id].append(Placement(enode, read, write))
        # The order of names may differ between databases.
        found = {key: PlacementSet.of(tuple(sorted(ones, key=lambda one: one.enode))) for key, ones in placed.items()}
        return {0: PlacementSet(), **found}

    def _count(self, table: sa.Table) -> int:
        """The number of rows of a table. The database counts them only if the number is not known already."""
        if table.name not in self.counts:
            counted = self._connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            self.counts[table.name] = counted
        return self.counts[table.name]

    def _add_to_count(self, table: sa.Table, count: int) -> None:
        if table.name in self.counts:
            self.counts[table.name] += count


def database_now_ms(connection: sa.Connection) -> int:
    """The database's time, milliseconds since 1970-01-01 UTC."""
    if connection.dialect.name == "postgresql":
        now = sa.text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)")
    else:
        now = sa.text("SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)")
    return int(connection.execute(now).scalar_one())
