"""A PostgreSQL that loses its last changes, as after a failover to a lagging replica, under running name servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from ortoo.common.errors import NotFound, Unavailable
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.catalog.engine import create_database_engine
from ortoo.namesrv.decisions.process_leases import Enode
from ortoo.namesrv.decisions.topics import NewTopic
from ortoo.namesrv.directory.directory import Directory
from ortoo.verification.servers.postgres import postgres

ID = "00000000-0000-4000-8000-000000000001"


@asynccontextmanager
async def name_server(url: str, folder: Path) -> AsyncIterator[Directory]:
    """A name server's directory that follows changes of others."""
    catalog = await Catalog.open(url, folder, ID)
    directory = Directory(
        catalog,
        await catalog.load_all(),
        lease_s=100,
        deletion_grace_ms=86_400_000,
        watchers_max=10,
        clock=SystemClock(),
        randomness=Randomness(),
    )
    directory.register_enode(Enode("e", "h:1", "s"), "", (), 0)
    async with Background("name server") as background:
        background.spawn("others", directory.follow_database(0.02))
        yield directory
    await catalog.close()


def lose(url: str, topic: str, version: int) -> None:
    """Restore the database to a version before a topic was created."""
    engine = create_database_engine(sa.make_url(url))
    with engine.begin() as connection:
        connection.execute(sa.delete(tables.topics).where(tables.topics.c.name == topic))
        connection.execute(sa.update(tables.directory).values(version=version))
    engine.dispose()


async def created(directory: Directory, name: str) -> None:
    """Create a topic, as a client that follows the error's remedy."""
    while True:
        with suppress(Unavailable):
            await directory.create_topic(NewTopic(name))
            return
        await SystemClock().sleep(0.02)


async def until_known(directory: Directory, name: str, *, known: bool) -> None:
    """Wait until a topic is served, or no longer served."""
    while True:
        try:
            directory.topic(name)
        except NotFound:
            if not known:
                return
        else:
            if known:
                return
        await SystemClock().sleep(0.02)


@pytest.mark.parametrize("changes", [0, 1, 3])
async def test_a_database_that_went_back_is_served_as_it_is_now(changes: int, tmp_path: Path) -> None:
    """Lost topics are served by no name server, new ones by all, and versions keep growing.

    Watchers get a full snapshot: an enode that gets only the changes would not offer its messages of a lost topic.
    """
    async with (
        postgres() as server,
        name_server(server.url, tmp_path / "a") as a,
        name_server(server.url, tmp_path / "b") as b,
        asyncio.timeout(60),
    ):
        await created(a, "kept")
        await until_known(b, "kept", known=True)
        before = a.version
        for number in range(3):
            await created(a, f"more-{number}")
        await created(a, "lost")
        await until_known(b, "lost", known=True)
        heard, watch = max(a.version, b.version), b.watches.watch()
        assert (await anext(watch)).snapshot
        lose(server.url, "lost", before)
        for number in range(changes):
            await created(a, f"new-{number}")
        for one in (a, b):
            await until_known(one, "lost", known=False)
            for number in range(changes):
                await until_known(one, f"new-{number}", known=True)
            assert one.topic("kept").name == "kept"
        async for news in watch:
            if news.snapshot:
                assert "lost" not in {topic.name for topic in news.topics}
                assert news.version > heard
                break
        await created(b, "last")
        await until_known(a, "last", known=True)
        assert b.topic("last").version > heard
