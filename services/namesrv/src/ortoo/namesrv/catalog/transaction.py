"""One change of the stored directory: what it may read and write. Runs on the catalog's thread."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.tables import row_of
from ortoo.namesrv.decisions.groups import Group
from ortoo.namesrv.decisions.topics import Placement, Topic


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything that is stored."""

    version: int
    topics: tuple[Topic, ...]
    groups: tuple[Group, ...]


class Transaction:
    """One open transaction. All or nothing of it is kept."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self.version = 0

    def begin_change(self) -> None:
        """Take the next version. Its row is locked from here on, so changes run one after another everywhere."""
        table = tables.directory
        self._connection.execute(sa.update(table).values(version=table.c.version + 1))
        self.version = self._connection.execute(sa.select(table.c.version)).scalar_one()

    def stored_version(self) -> int:
        """The version of what is stored."""
        return int(self._connection.execute(sa.select(tables.directory.c.version)).scalar_one())

    def contents(self) -> Contents:
        """Everything."""
        placed = defaultdict(list)
        for row in self._connection.execute(sa.select(tables.placements)):
            placed[row.topic_id].append(row)
        topics = self._connection.execute(sa.select(tables.topics)).all()
        groups = self._connection.execute(sa.select(tables.groups)).all()
        return Contents(
            self.stored_version(),
            tuple(_topic(row, placed[row.topic_id]) for row in topics),
            tuple(Group(**row._mapping) for row in groups),
        )

    def topic(self, name: str) -> Topic | None:
        """A topic by name."""
        row = self._connection.execute(sa.select(tables.topics).where(tables.topics.c.name == name)).one_or_none()
        if row is None:
            return None
        of_topic = tables.placements.c.topic_id == row.topic_id
        return _topic(row, self._connection.execute(sa.select(tables.placements).where(of_topic)))

    def group(self, name: str) -> Group | None:
        """A group by name."""
        row = self._connection.execute(sa.select(tables.groups).where(tables.groups.c.name == name)).one_or_none()
        return None if row is None else Group(**row._mapping)

    def topic_count(self) -> int:
        """How many topics there are."""
        return self._connection.execute(sa.select(sa.func.count()).select_from(tables.topics)).scalar_one()

    def group_count(self) -> int:
        """How many groups there are."""
        return self._connection.execute(sa.select(sa.func.count()).select_from(tables.groups)).scalar_one()

    def put_topic(self, topic: Topic) -> None:
        """Store a topic in place of the one with its name."""
        self.delete_topic(topic)
        self._connection.execute(sa.insert(tables.topics).values(row_of(tables.topics, topic)))
        rows = [row_of(tables.placements, placement, topic_id=topic.topic_id) for placement in topic.placements]
        self._connection.execute(sa.insert(tables.placements), rows)

    def delete_topic(self, topic: Topic) -> None:
        """Remove a topic and its placements, if they are there."""
        for table in (tables.placements, tables.topics):
            self._connection.execute(sa.delete(table).where(table.c.topic_id == topic.topic_id))

    def put_group(self, group: Group) -> None:
        """Store a group in place of the one with its name."""
        self.delete_group(group.name)
        self._connection.execute(sa.insert(tables.groups).values(row_of(tables.groups, group)))

    def delete_group(self, name: str) -> None:
        """Remove a group, if it is there."""
        self._connection.execute(sa.delete(tables.groups).where(tables.groups.c.name == name))


def _topic(row: sa.Row[tuple[object, ...]], placed: Iterable[sa.Row[tuple[object, ...]]]) -> Topic:
    """A topic from its row and those of its placements."""
    found = [Placement(p.enode, p.read_queue_count, p.write_queue_count) for p in placed]
    return Topic(**row._mapping, placements=tuple(sorted(found, key=lambda placement: placement.enode)))
