"""The cost of one change in the database does not depend on the number of topics."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from ortoo.common.directory.group import Group
from ortoo.common.directory.topic import Permission, Placement
from ortoo.common.errors import NotFound
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.catalog.transaction import CatalogTransaction
from ortoo.namesrv.decisions.deletions import TopicDeletion
from ortoo.namesrv.decisions.topics import Topic
from ortoo.namesrv.directory import deletion

FEW, MANY = 50, 200


def topic(number: int) -> Topic:
    """A topic on one enode."""
    return Topic(f"t{number}", number, 1, Permission.READ_WRITE, (Placement("e", 1, 1),), 1)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Catalog]:
    """An empty catalog in a folder."""
    catalog = await Catalog.open("", folder, "directory")
    try:
        yield catalog
    finally:
        await catalog.close()


async def change(catalog: Catalog, work: Callable[[CatalogTransaction], Any]) -> Any:
    """The result of one committed transaction."""
    return await catalog.run_transaction(lambda stored: (work(stored), True))


def create(number: int) -> Callable[[CatalogTransaction], int]:
    """Creates a topic and returns the number of topics before it, as the creation of a topic does."""

    def work(stored: CatalogTransaction) -> int:
        count = stored.topic_count()
        stored.put_topic(topic(number), None)
        return count

    return work


@contextmanager
def statements() -> Iterator[list[str]]:
    """The SQL statements that the block executes."""
    executed: list[str] = []

    def record(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
        executed.append(statement)

    sa.event.listen(sa.engine.Engine, "before_cursor_execute", record)
    try:
        yield executed
    finally:
        sa.event.remove(sa.engine.Engine, "before_cursor_execute", record)


@contextmanager
def steps_of_sqlite() -> Iterator[list[int]]:
    """A list that grows by one with each step of SQLite's virtual machine in the block; reading a row is a step."""
    steps: list[int] = []

    def attach(connection: Any, *more: Any) -> None:
        connection.set_progress_handler(lambda: steps.append(1), 1)

    def detach(connection: Any, *more: Any) -> None:
        connection.set_progress_handler(None, 1)

    sa.event.listen(sa.pool.Pool, "checkout", attach)
    sa.event.listen(sa.pool.Pool, "checkin", detach)
    try:
        yield steps
    finally:
        sa.event.remove(sa.pool.Pool, "checkout", attach)
        sa.event.remove(sa.pool.Pool, "checkin", detach)


async def test_the_database_counts_its_topics_once(tmp_path: Path) -> None:
    """The creation of many topics scans the table of topics once, not once for each topic."""
    async with opened(tmp_path) as catalog:
        with statements() as executed:
            assert [await change(catalog, create(number)) for number in range(FEW)] == list(range(FEW))
        assert sum("count(" in one.lower() for one in executed) == 1


async def test_a_restored_topic_costs_the_same_beside_more_topics(tmp_path: Path) -> None:
    """Only the placements of this topic are read."""
    steps = []
    async with opened(tmp_path) as catalog:
        for begin, end in ((0, FEW), (FEW, MANY)):
            for number in range(begin, end):
                await change(catalog, create(number))
            await change(catalog, lambda stored: deletion.delete_topic("t7", 0, 1, 1_000, stored))
            with steps_of_sqlite() as counted:
                restored, _ = await change(catalog, lambda stored: deletion.undelete_topic("t7", 7, stored))
            assert restored.placements == topic(7).placements
            steps.append(len(counted))
    assert 0 < steps[1] <= 1.2 * steps[0]


async def test_the_known_count_follows_every_change(tmp_path: Path) -> None:
    """After deletions, restores, refused changes and changes of other name servers, the count is that of the table."""
    async with opened(tmp_path) as catalog:
        counted = CatalogTransaction.topic_count, CatalogTransaction.group_count

        async def counts() -> list[int]:
            return [await change(catalog, count) for count in counted]

        assert await counts() == [0, 0]
        await change(catalog, create(1))
        await change(catalog, create(2))
        await change(catalog, lambda stored: stored.put_topic(topic(2), topic(2)))
        group = Group("g", 1, True, 1, 1, 1)
        await change(catalog, lambda stored: stored.put_group(group, None))
        assert await counts() == [2, 1]
        await change(catalog, lambda stored: stored.delete_topics([TopicDeletion(topic(2), 1, 1_000, is_due=False)]))
        await change(catalog, lambda stored: deletion.delete_group("g", 1, 1_000, stored))
        assert await counts() == [1, 0]
        await change(catalog, lambda stored: stored.undelete_topic(topic(2)))
        await change(catalog, lambda stored: deletion.undelete_group("g", stored))
        assert await counts() == [2, 1]
        await catalog.run_transaction(lambda stored: (create(3)(stored), False))  # not committed
        assert await counts() == [2, 1]

        def failing(stored: CatalogTransaction) -> tuple[None, bool]:
            create(3)(stored)
            raise NotFound("refused")

        with pytest.raises(NotFound):
            await catalog.run_transaction(failing)
        assert await counts() == [2, 1]


async def test_a_count_before_a_change_of_another_name_server_is_not_used(tmp_path: Path) -> None:
    """Each transaction knows the version after which the topics were counted."""
    async with opened(tmp_path) as catalog:
        await change(catalog, create(1))
        engine = sa.create_engine(f"sqlite:///{tmp_path}/namesrv.db")
        with engine.begin() as connection:  # a change of another name server
            other = CatalogTransaction(connection)
            other.begin_version()
            other.put_topic(topic(2), None)
        engine.dispose()
        assert await change(catalog, CatalogTransaction.topic_count) == 2
