"""docs/operations/directory.md: its commands, one after another, in the situations that it describes."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from ortoo.v1 import namesrv_pb2 as pb
from ortoo.v1 import orphaned_topics_pb2 as orphaned_pb
from ortoo.verification.servers import command
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from ortoo.verification.servers.postgres import postgres
from tests.e2e.test_documents import says, steps


class Page:
    """The actions of the page's reader between its commands."""

    def __init__(self, cluster: InProcessCluster, folder: Path, url: str) -> None:
        """Settings files as the page names them are in `folder`."""
        self.cluster = cluster
        for name, setting in (
            ("namesrv", f'data_dir = "{cluster.folder / "namesrv"}"'),
            ("postgresql", f'database_url = "{url}"'),
            ("sqlite", f'data_dir = "{folder / "sqlite"}"'),
        ):
            (folder / f"{name}.toml").write_text(f"{setting}\n")
        self.url, self.again = url, folder / "sqlite"
        self.before: dict[int, Callable[[], Awaitable[None]]] = {
            1: self.lose_the_database,
            2: self.start,
            3: self.stop,
            4: self.start_on_postgresql,
            5: self.stop,
            6: self.start_on_sqlite_and_lose_that,
        }
        """By the number of the command: the action before it."""

    async def stop(self) -> None:
        """The name server is stopped."""
        await self.cluster.close("namesrv-0")

    async def lose_the_database(self) -> None:
        """The name server is stopped and its folder is deleted."""
        await self.stop()
        shutil.rmtree(self.cluster.folder / "namesrv")

    async def start(self) -> None:
        """The name server is started; topic, group and user exist, and there is nothing to adopt."""
        await self.cluster.open_namesrv()
        await self.is_reached()
        offered = await self.cluster.name_service.ListOrphanedTopics(orphaned_pb.ListOrphanedTopicsRequest())
        assert not offered.topics
        topics = await self.cluster.name_service.ListTopics(pb.ListTopicsRequest())
        assert [one.name for one in topics.topics] == ["orders"]
        groups = await self.cluster.name_service.ListGroups(pb.ListGroupsRequest())
        assert [(one.name, one.attempts_max) for one in groups.groups] == [("billing", 5)]
        users = await self.cluster.name_service.ListUsers(pb.ListUsersRequest())
        assert [one.access_key for one in users.users] == ["alice"]

    async def is_reached(self) -> None:
        """The enode has found the name server."""
        async with asyncio.timeout(60):
            async for news in self.cluster.name_service.WatchRoutes(pb.WatchRoutesRequest()):
                if any(enode.alive for enode in news.enodes):
                    return

    async def start_on_postgresql(self) -> None:
        """The same directory, in another database."""
        self.cluster.settings["namesrv"] = {"database_url": self.url}
        await self.start()

    async def start_on_sqlite_and_lose_that(self) -> None:
        """Move back; afterwards there is neither a database nor a backup."""
        self.cluster.settings["namesrv"] = {"data_dir": self.again}
        await self.start()
        await self.stop()
        shutil.rmtree(self.again)
        await self.cluster.open_namesrv()
        await self.is_reached()


async def test_the_page_is_true_step_by_step(tmp_path: Path) -> None:
    """Each command ends with 0 and prints what the page shows; the message is there at the end."""
    async with postgres() as database, open_cluster(tmp_path) as cluster:
        page = Page(cluster, tmp_path, database.url)
        await cluster.create_topic("orders")
        await cluster.name_service.PutUser(pb.PutUserRequest(user=pb.User(access_key="alice"), secret_key="x" * 16))
        for words in (["ortoo", "send", "orders", "hello"], ["ortoo", "group", "update", "billing", "--attempts", "5"]):
            outcome = await command.run(words, cluster.address)
            assert outcome.exit_code == 0, outcome
        for number, (line, expected) in enumerate(steps("operations/directory.md")):
            if number in page.before:
                await page.before[number]()
            words = [f"{tmp_path / word}" if word.endswith((".toml", ".backup")) else word for word in line.split()]
            outcome = await command.run(words, cluster.address)
            assert outcome.exit_code == 0, (words, outcome)
            assert says(outcome.stdout, expected), (words, outcome)
        assert number == 11
        found = await command.run(["ortoo", "tail", "orders", "--from-first", "--no-follow"], cluster.address)
        assert "hello" in found.stdout, found
        listed = await command.run(["ortoo", "topic", "deleted"], cluster.address)
        assert "orders" not in listed.stdout
