"""The name server over real gRPC, on a real database file."""

import asyncio
import contextlib
import os
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ortoo.common.cluster.route_watch import RoutePosition
from ortoo.common.errors import AlreadyExists, Conflict, DataLoss, Invalid, NotFound, Overloaded, Unsupported
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.service import EXIT_INVALID_SETTINGS, EXIT_NOT_STARTED
from ortoo.namesrv.app import open_namesrv
from ortoo.namesrv.settings import NamesrvSettings
from ortoo.v1 import namesrv_pb2 as pb
from ortoo.v1 import topic_pb2
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from ortoo.verification.forks.spawning import outcome

GUARD_S = 60


class SteppedClock(SystemClock):
    """Stands still until the test advances it; sleepers then wake once."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self._step = asyncio.Event()

    def monotonic_s(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        await self._step.wait()

    def pass_s(self, seconds: float) -> None:
        """Advance the time."""
        self.seconds += seconds
        step, self._step = self._step, asyncio.Event()
        step.set()


@contextlib.asynccontextmanager
async def namesrv(folder: Path, clock: SystemClock | None = None, **settings: Any) -> AsyncIterator[NameServiceStub]:
    """A name server in this process, and a channel to it."""
    chosen = NamesrvSettings(listen_address="127.0.0.1:0", data_dir=folder, **settings)
    async with asyncio.timeout(GUARD_S), open_namesrv(chosen, clock=clock) as running, Channels() as channels:
        with rpc_errors("name server"):
            yield NameServiceStub(channels.channel_to(running.address))


async def register(stub: NameServiceStub, name: str = "e", store_id: str = "s") -> pb.RegisterEnodeResponse:
    """Register an enode."""
    enode = topic_pb2.Enode(name=name, address="h:1", store_id=store_id)
    return await stub.RegisterEnode(pb.RegisterEnodeRequest(enode=enode))


async def test_topic_is_created_shown_changed_and_deleted(tmp_path: Path) -> None:
    """Create, describe, update and delete a topic; after it is created again it has another id."""
    async with namesrv(tmp_path) as stub:
        await register(stub)
        made = (await stub.CreateTopic(pb.CreateTopicRequest(name="t", read_queue_count=8))).topic
        assert made.topic_id
        assert (await stub.GetTopic(pb.GetTopicRequest(name="t"))).topic == made
        assert (await stub.CreateTopic(pb.CreateTopicRequest(name="t", read_queue_count=8))).topic == made
        changed = (await stub.UpdateTopic(pb.UpdateTopicRequest(name="t", read_queue_count=9))).topic
        assert changed.version > made.version
        assert list((await stub.ListTopics(pb.ListTopicsRequest())).topics) == [changed]
        await stub.DeleteTopic(pb.DeleteTopicRequest(name="t"))
        assert not (await stub.ListTopics(pb.ListTopicsRequest())).topics
        again = (await stub.CreateTopic(pb.CreateTopicRequest(name="t"))).topic
        assert again.topic_id != made.topic_id


async def test_a_deleted_topic_is_restored_by_its_id_unless_it_was_deleted_at_once(tmp_path: Path) -> None:
    """Several deleted topics may have one name. The topics of a deleted group stay."""

    async def delete(name: str, *, at_once: bool = False) -> int:
        request = pb.DeleteTopicRequest(name=name, skip_grace_period=at_once)
        return (await stub.DeleteTopic(request)).topic_id

    async def restore(topic_id: int = 0) -> topic_pb2.Topic:
        with rpc_errors("name server"):
            return (await stub.UndeleteTopic(pb.UndeleteTopicRequest(name="t", topic_id=topic_id))).topic

    async with namesrv(tmp_path) as stub:
        await register(stub)
        await stub.CreateTopic(pb.CreateTopicRequest(name="t", read_queue_count=8))
        first = await delete("t")
        await stub.CreateTopic(pb.CreateTopicRequest(name="t"))
        with pytest.raises(AlreadyExists, match="Delete the new topic first"):
            await restore(first)
        await delete("t")
        with pytest.raises(Conflict, match="choose one of them by its id"):
            await restore()
        restored = await restore(first)
        assert (restored.topic_id, restored.placements[0].read_queue_count) == (first, 8)
        assert await delete("t", at_once=True) == first
        with pytest.raises(NotFound):
            await restore(first)
        await stub.PutGroup(pb.PutGroupRequest(group=topic_pb2.Group(name="g", consume_enabled=True)))
        await stub.CreateTopic(pb.CreateTopicRequest(name="%DLQ%g"))
        await stub.DeleteGroup(pb.DeleteGroupRequest(name="g", skip_grace_period=True))
        assert (await stub.GetTopic(pb.GetTopicRequest(name="%DLQ%g"))).topic.topic_id


async def test_restart_keeps_topics_and_groups_and_forgets_processes(tmp_path: Path) -> None:
    """Changes that were answered and the directory's id survive a restart; live processes register again."""
    async with namesrv(tmp_path) as stub:
        directory_id = (await register(stub)).directory_id
        assert len(directory_id) == 36
        topic = (await stub.CreateTopic(pb.CreateTopicRequest(name="t"))).topic
        wish = topic_pb2.Group(name="g", consume_enabled=True)
        group = (await stub.PutGroup(pb.PutGroupRequest(group=wish))).group
    async with namesrv(tmp_path) as stub:
        first = await anext(aiter(stub.WatchRoutes(pb.WatchRoutesRequest())))
        assert first == pb.WatchRoutesResponse(
            version=group.version, snapshot=True, topics=[topic], groups=[group], directory_id=directory_id
        )
        assert list((await stub.ListGroups(pb.ListGroupsRequest())).groups) == [group]
        await stub.DeleteGroup(pb.DeleteGroupRequest(name="g"))
        assert (await register(stub)).version == group.version + 1


async def test_a_watch_continues_at_a_restarted_name_server(tmp_path: Path) -> None:
    """It gets only the changes that it has missed, and a snapshot from another directory."""
    position = RoutePosition()
    async with namesrv(tmp_path) as stub:
        await register(stub)
        for name in ("kept", "changed", "deleted"):
            await stub.CreateTopic(pb.CreateTopicRequest(name=name))
        async for news in position.follow(_first(stub, position)):
            assert news.snapshot
            assert len(news.topics) == 3
        await stub.UpdateTopic(pb.UpdateTopicRequest(name="changed", read_queue_count=8))
        await stub.DeleteTopic(pb.DeleteTopicRequest(name="deleted"))
    async with namesrv(tmp_path) as stub:
        async for news in position.follow(_first(stub, position)):
            assert (news.snapshot, news.resumed) == (False, True)
            assert [topic.name for topic in news.topics] == ["changed"]
            assert list(news.deleted_topics) == ["deleted"]
            assert not news.enodes
    async with namesrv(tmp_path / "other") as stub:
        async for news in position.follow(_first(stub, position)):
            assert (news.snapshot, news.resumed) == (True, False)


async def _first(stub: NameServiceStub, position: RoutePosition) -> AsyncIterator[pb.WatchRoutesResponse]:
    async for part in stub.WatchRoutes(position.request()):
        yield part
        if not part.more:
            return


async def test_watch_tells_changes_in_order_and_ends_at_the_stop(tmp_path: Path) -> None:
    """A snapshot first, then each change once, with growing versions; the stop ends the stream with OK.

    Changes in quick succession are in one message.
    """
    async with asyncio.timeout(GUARD_S), Channels() as channels:
        settings = NamesrvSettings(listen_address="127.0.0.1:0", data_dir=tmp_path)
        async with open_namesrv(settings) as running:
            stub = NameServiceStub(channels.channel_to(running.address))
            call = stub.WatchRoutes(pb.WatchRoutesRequest())
            watch = aiter(call)
            first = await anext(watch)
            assert first.snapshot
            await register(stub)
            told = [await anext(watch)]
            names = [f"t{number}" for number in range(20)]
            for name in names:
                await stub.CreateTopic(pb.CreateTopicRequest(name=name))
            await stub.DeleteTopic(pb.DeleteTopicRequest(name="t0"))
            await stub.Unregister(pb.UnregisterRequest(enode="e"))
            while not told[-1].enodes or told[-1].enodes[-1].alive:
                told.append(await anext(watch))
            topics = [topic for news in told for topic in news.topics]
            assert told[0].enodes[0].alive
            assert [topic.name for topic in topics if topic.name != "t0"] == names[1:]
            assert [topic.version - first.version for topic in topics if topic.name != "t0"] == list(range(2, 21))
            assert [name for news in told for name in news.deleted_topics] == ["t0"]
            assert [news.version for news in told] == sorted(news.version for news in told)
        assert [news async for news in watch] == []
        assert (await call.code()).name == "OK"


async def test_lease_that_is_not_renewed_is_told_as_dead(tmp_path: Path) -> None:
    """E-023, E-024: after 15 s without a heartbeat watchers are notified, and no queue is placed there."""
    clock = SteppedClock()
    async with namesrv(tmp_path, clock) as stub:
        watch = aiter(stub.WatchRoutes(pb.WatchRoutesRequest()))
        await anext(watch)
        clock.pass_s(1)  # watchers get the changes of a round together, and the name server itself made one
        assert (await register(stub)).lease_ms == 15_000
        assert (await anext(watch)).enodes[0].alive
        clock.pass_s(15)
        assert not (await anext(watch)).enodes[0].alive
        with pytest.raises(Conflict, match="no enode is alive"), rpc_errors("name server"):
            await stub.CreateTopic(pb.CreateTopicRequest(name="t"))


async def test_second_snode_without_redis_is_refused(tmp_path: Path) -> None:
    """The refusal is a Conflict and names the setting."""
    async with namesrv(tmp_path) as stub:
        requests = [
            pb.RegisterSnodeRequest(snode=topic_pb2.Snode(name=name, address="h:1"), incarnation="1") for name in "ab"
        ]
        await stub.RegisterSnode(requests[0])
        with pytest.raises(Conflict, match="redis_url"), rpc_errors("name server"):
            await stub.RegisterSnode(requests[1])


WRONG: dict[str, tuple[str, Any, type[Exception]]] = {
    "unknown topic": ("GetTopic", pb.GetTopicRequest(name="x"), NotFound),
    "unknown topic deleted": ("DeleteTopic", pb.DeleteTopicRequest(name="x"), NotFound),
    "deleted in an old version": ("DeleteTopic", pb.DeleteTopicRequest(name="t", version=1), Conflict),
    "a time to live without lite topics": ("UpdateTopic", pb.UpdateTopicRequest(name="t", lite_ttl_ms=60_000), Invalid),
    "too short a time to live": (
        "CreateTopic",
        pb.CreateTopicRequest(name="x", message_type=topic_pb2.MESSAGE_TYPE_LITE, lite_ttl_ms=59_999),
        Invalid,
    ),
    "unknown group deleted": ("DeleteGroup", pb.DeleteGroupRequest(name="x"), NotFound),
    "illegal name": ("CreateTopic", pb.CreateTopicRequest(name="a b"), Invalid),
    "unknown permission": ("CreateTopic", pb.CreateTopicRequest(name="x", permission=9), Invalid),  # type: ignore[arg-type]
    "unknown enode": ("CreateTopic", pb.CreateTopicRequest(name="x", enodes=["y"]), NotFound),
    "other queues": ("CreateTopic", pb.CreateTopicRequest(name="t", read_queue_count=5), AlreadyExists),
    "too many queues": ("UpdateTopic", pb.UpdateTopicRequest(name="t", read_queue_count=1025), Invalid),
    "fewer read queues": ("UpdateTopic", pb.UpdateTopicRequest(name="t", read_queue_count=3), Invalid),
    "group without name": ("PutGroup", pb.PutGroupRequest(), Invalid),
    "unregister without a name": ("Unregister", pb.UnregisterRequest(), Invalid),
    "enode without name": ("RegisterEnode", pb.RegisterEnodeRequest(), Invalid),
    "snode without name": ("RegisterSnode", pb.RegisterSnodeRequest(), Invalid),
}


@pytest.mark.parametrize("what", WRONG)
async def test_refused_request_stores_nothing(tmp_path: Path, what: str) -> None:
    """Each is a named error; the directory and its version are unchanged (G11)."""
    method, request, kind = WRONG[what]
    async with namesrv(tmp_path) as stub:
        await register(stub)
        topic = (await stub.CreateTopic(pb.CreateTopicRequest(name="t"))).topic
        with pytest.raises(kind), rpc_errors("name server"):
            await getattr(stub, method)(request)
        assert list((await stub.ListTopics(pb.ListTopicsRequest())).topics) == [topic]
        assert (await register(stub)).version == topic.version


async def test_watchers_are_limited(tmp_path: Path) -> None:
    """A watcher above the limit is refused; the others continue."""
    async with namesrv(tmp_path, watchers_max=1) as stub:
        watch = aiter(stub.WatchRoutes(pb.WatchRoutesRequest()))
        await anext(watch)
        with pytest.raises(Overloaded), rpc_errors("name server"):
            await anext(aiter(stub.WatchRoutes(pb.WatchRoutesRequest())))
        await register(stub)
        assert (await anext(watch)).enodes


async def test_second_name_server_on_the_same_file_is_refused(tmp_path: Path) -> None:
    """The error names the owner of the file and a remedy; after the first has ended, the second may start."""
    async with namesrv(tmp_path):
        with pytest.raises(Conflict, match="another name server uses"):
            async with namesrv(tmp_path):
                pass
    async with namesrv(tmp_path):
        pass


async def test_newer_schema_and_damaged_file_are_refused(tmp_path: Path) -> None:
    """Neither is touched; each refusal names a remedy."""
    async with namesrv(tmp_path):
        pass
    with contextlib.closing(sqlite3.connect(tmp_path / "namesrv.db")) as database:
        database.execute("update alembic_version set version_num = '9999'")
        database.commit()
    with pytest.raises(Unsupported, match="has schema 9999"):
        async with namesrv(tmp_path):
            pass
    assert "has schema 9999" in await refused(EXIT_INVALID_SETTINGS, ORTOO_NAMESRV_DATA_DIR=str(tmp_path))
    (tmp_path / "namesrv.db").write_bytes(b"this is no database at all" * 1000)
    with pytest.raises(DataLoss, match="restore a copy of it"):
        async with namesrv(tmp_path):
            pass


async def refused(exit_code: int, **environ: str) -> str:
    """Run the process, which must end with this code; return its output."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ORTOO_")}
    async with asyncio.timeout(GUARD_S):
        code, _, error = await outcome(sys.executable, "-m", "ortoo.namesrv", env=clean | environ)
    assert code == exit_code, error
    return error


async def test_process_refuses_a_taken_port(tmp_path: Path) -> None:
    """The error names the port."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        said = await refused(
            EXIT_NOT_STARTED,
            ORTOO_NAMESRV_LISTEN_ADDRESS=f"127.0.0.1:{port}",
            ORTOO_NAMESRV_DATA_DIR=str(tmp_path),
        )
    assert f"127.0.0.1:{port}" in said
    assert "the port is taken" in said


async def test_process_refuses_an_unknown_setting() -> None:
    """The error names the most similar setting."""
    assert "did you mean ORTOO_NAMESRV_DATA_DIR?" in await refused(EXIT_INVALID_SETTINGS, ORTOO_NAMESRV_DATADIR="x")
