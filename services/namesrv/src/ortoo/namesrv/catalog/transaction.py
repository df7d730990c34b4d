"""One change of the stored directory: what it may read and write. Runs on the catalog's thread."""

import dataclasses
from collections import defaultdict

import sqlalchemy as sa

from ortoo.namesrv.catalog import tables
from ortoo.namesrv.decisions.groups import Group
from ortoo.namesrv.decisions.publish_order import order_to_text
from ortoo.namesrv.decisions.topics import Topic


@dataclasses.dataclass(frozen=True, slots=True)
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
            tuple(tables.topic_of(row, placed[row.topic_id]) for row in topics),
            tuple(map(tables.group_of, groups)),
        )

    def topic(self, name: str) -> Topic | None:
        """A topic by name."""
        row = self._connection.execute(sa.select(tables.topics).where(tables.topics.c.name == name)).one_or_none()
        if row is None:
            return None
        of_topic = tables.placements.c.topic_id == row.topic_id
        return tables.topic_of(row, self._connection.execute(sa.select(tables.placements).where(of_topic)))

    def group(self, name: str) -> Group | None:
        """A group by name."""
        row = self._connection.execute(sa.select(tables.groups).where(tables.groups.c.name == name)).one_or_none()
        return None if row is None else tables.group_of(row)

    def topic_count(self) -> int:
        """How many topics there are."""
        return self._connection.execute(sa.select(sa.func.count()).select_from(tables.topics)).scalar_one()

    def group_count(self) -> int:
        """How many groups there are."""
        return self._connection.execute(sa.select(sa.func.count()).select_from(tables.groups)).scalar_one()

    def put_topic(self, topic: Topic) -> None:
        """Store a topic in place of the one with its name."""
        topic_id = tables.signed(topic.topic_id)
        self.delete_topic(topic)
        self._connection.execute(
            sa.insert(tables.topics).values(
                name=topic.name,
                topic_id=topic_id,
                version=topic.version,
                permission=topic.permission.value,
                created_at_ms=topic.created_at_ms,
                message_type=topic.message_type.value,
                publish_order=order_to_text(topic.publish_order),
            )
        )
        rows = [{"topic_id": topic_id, **dataclasses.asdict(placement)} for placement in topic.placements]
        self._connection.execute(sa.insert(tables.placements), rows)

    def delete_topic(self, topic: Topic) -> None:
        """Remove a topic and its placements, if they are there."""
        topic_id = tables.signed(topic.topic_id)
        self._connection.execute(sa.delete(tables.placements).where(tables.placements.c.topic_id == topic_id))
        self._connection.execute(sa.delete(tables.topics).where(tables.topics.c.topic_id == topic_id))

    def put_group(self, group: Group) -> None:
        """Store a group in place of the one with its name."""
        self.delete_group(group.name)
        row = {**dataclasses.asdict(group), "retry": group.retry.text()}
        self._connection.execute(sa.insert(tables.groups).values(**row))

    def delete_group(self, name: str) -> None:
        """Remove a group, if it is there."""
        self._connection.execute(sa.delete(tables.groups).where(tables.groups.c.name == name))
