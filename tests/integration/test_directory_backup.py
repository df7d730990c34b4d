"""Backups of the directory: complete, private, never written over another file. Its page's commands are run in e2e."""

import shutil
import stat
from pathlib import Path

import pytest

from ortoo.common.errors import Conflict, DataLoss, Fenced, Invalid, NotFound, Unsupported
from ortoo.common.errors.status import rpc_errors
from ortoo.common.process.clock import SystemClock
from ortoo.common.records.sealed_batch import crc32c
from ortoo.namesrv.offline.backup import backup, restore
from ortoo.v1 import group_deletion_pb2, topic_pb2
from ortoo.v1 import named_lease_pb2 as lease_pb
from ortoo.v1 import namesrv_pb2 as pb
from tests.integration.name_server import name_server

NEW_ID = "00000000-0000-4000-8000-000000000001"
NOW_MS, DAY_MS = SystemClock().now_ms(), 86_400_000
ENODE = pb.RegisterEnodeRequest(enode=topic_pb2.Enode(name="e", address="h:1", store_id="s"))


async def test_everything_is_there_again_in_an_empty_database(tmp_path: Path) -> None:
    """Taken while the directory is served; topics, groups, deletions, users and the id are as they were then."""
    file = tmp_path / "directory.backup"
    async with name_server("", tmp_path / "one") as stub:
        await stub.RegisterEnode(ENODE)
        for name in ("kept", "deleted"):
            await stub.CreateTopic(pb.CreateTopicRequest(name=name))
        await stub.DeleteTopic(pb.DeleteTopicRequest(name="deleted"))
        await stub.PutUser(pb.PutUserRequest(user=pb.User(access_key="alice"), secret_key="secret-of-alice"))
        right = await stub.AcquireNamedLease(
            lease_pb.AcquireNamedLeaseRequest(resource="r", owner="o", lease_ms=60_000)
        )
        said = backup("", tmp_path / "one", file)
        await stub.CreateTopic(pb.CreateTopicRequest(name="later"))
    assert "with 1 topic, 0 groups, 1 user" in said
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert said.replace("backed up", "restored").replace(" to ", " from ") == restore(
        "", tmp_path / "two", file, NEW_ID, NOW_MS
    )
    async with name_server("", tmp_path / "two") as stub:
        topics = (await stub.ListTopics(pb.ListTopicsRequest())).topics
        assert [one.name for one in topics] == ["kept"]
        assert (await stub.UndeleteTopic(pb.UndeleteTopicRequest(name="deleted"))).topic.name == "deleted"
        assert (await stub.GetUser(pb.GetUserRequest(access_key="alice"))).secret_key == "secret-of-alice"
        with pytest.raises(Fenced), rpc_errors("name server"):
            await stub.ReleaseNamedLease(lease_pb.ReleaseNamedLeaseRequest(resource="r", owner="o", epoch=right.epoch))


async def test_nothing_that_came_after_a_backup_is_newer_than_what_is_restored(tmp_path: Path) -> None:
    """Deletions that may have been undone wait their whole time again; versions and epochs start above all others.

    This also holds when the same backup is restored once more, later.
    """
    file, known = tmp_path / "directory.backup", []
    async with name_server("", tmp_path / "one") as stub:
        await stub.RegisterEnode(ENODE)
        await stub.CreateTopic(pb.CreateTopicRequest(name="t"))
        await stub.DeleteTopic(pb.DeleteTopicRequest(name="t"))
        await stub.PutGroup(pb.PutGroupRequest(group=topic_pb2.Group(name="g")))
        await stub.DeleteGroup(pb.DeleteGroupRequest(name="g"))
        await stub.AcquireNamedLease(lease_pb.AcquireNamedLeaseRequest(resource="r", owner="o", lease_ms=100))
        backup("", tmp_path / "one", file)
    for number, now_ms in enumerate((NOW_MS + 7 * DAY_MS, NOW_MS + 8 * DAY_MS)):
        restore("", tmp_path / f"again-{number}", file, NEW_ID, now_ms)
        async with name_server("", tmp_path / f"again-{number}") as stub:
            [topic] = (await stub.ListDeletedTopics(pb.ListDeletedTopicsRequest())).topics
            [group] = (await stub.ListDeletedGroups(group_deletion_pb2.ListDeletedGroupsRequest())).groups
            assert topic.due_at_ms == group.due_at_ms == now_ms + DAY_MS
            right = await stub.AcquireNamedLease(
                lease_pb.AcquireNamedLeaseRequest(resource="r", owner="o", lease_ms=100)
            )
            known.append((((await stub.UndeleteTopic(pb.UndeleteTopicRequest(name="t"))).topic.version), right.epoch))
    assert all(later > before + 1_000_000 for before, later in zip(*known, strict=True))


async def test_what_cannot_be_restored_changes_nothing(tmp_path: Path) -> None:
    """A served or filled database, a file that is truncated, changed, newer, or no backup: each is named."""
    file, wrong = tmp_path / "directory.backup", tmp_path / "wrong"
    with pytest.raises(NotFound, match=r"there is no database .*namesrv\.db"):
        backup("", tmp_path / "nowhere", file)
    async with name_server("", tmp_path / "one") as stub:
        await stub.RegisterEnode(ENODE)
        await stub.CreateTopic(pb.CreateTopicRequest(name="t"))
        backup("", tmp_path / "one", file)
        with pytest.raises(Conflict, match="another name server uses"):
            restore("", tmp_path / "one", file, NEW_ID, NOW_MS)
    with pytest.raises(Conflict, match=r"is not empty: it has .*topics"):
        restore("", tmp_path / "one", file, NEW_ID, NOW_MS)
    whole = file.read_bytes()
    body, last = whole.rsplit(b"\n", 2)[:2]
    newer = body.replace(b'"schema": "00', b'"schema": "99', 1) + b"\n"
    foreign = body.replace(b'"table": "topics"', b'"table": "things"') + b"\n"
    for data, error, words in (
        (body + b"\n", DataLoss, "incomplete or was changed"),
        (whole.replace(b'"t"', b'"u"'), DataLoss, "incomplete or was changed"),
        (newer + last + b"\n", Unsupported, "use a newer ortoo-namesrv"),
        (foreign + b'{"rows": %d, "crc32c": "%08x"}\n' % (body.count(b"\n"), crc32c(foreign)), Invalid, "things"),
        (b"something else\n", Invalid, "not a backup of a directory"),
        (b"", Invalid, "not a backup of a directory"),
    ):
        wrong.write_bytes(data)
        with pytest.raises(error, match=words):
            restore("", tmp_path / "two", wrong, NEW_ID, NOW_MS)
    restore("", tmp_path / "two", file, NEW_ID, NOW_MS)


async def test_changes_beside_a_database_that_was_moved_away_are_not_thrown_away(tmp_path: Path) -> None:
    """SQLite keeps the last changes in a separate file; a new database beside it would destroy those of the old one."""
    folder, file = tmp_path / "data", tmp_path / "directory.backup"
    async with name_server("", folder) as stub:
        await stub.RegisterEnode(ENODE)
        await stub.CreateTopic(pb.CreateTopicRequest(name="t"))
        backup("", folder, file)
        await stub.CreateTopic(pb.CreateTopicRequest(name="last"))
        killed = tmp_path / "killed"
        shutil.copytree(folder, killed)
    (killed / "namesrv.db").rename(killed / "old.db")
    wal = (killed / "namesrv.db-wal").read_bytes()
    assert wal
    with pytest.raises(Conflict, match=r"namesrv\.db-wal is the write-ahead log of a database that was moved away"):
        restore("", killed, file, NEW_ID, NOW_MS)
    with pytest.raises(Conflict, match="that was moved away"):
        async with name_server("", killed):
            pass
    assert (killed / "namesrv.db-wal").read_bytes() == wal
    (killed / "namesrv.db-wal").rename(killed / "old.db-wal")
    assert "with 1 topic," in restore("", killed, file, NEW_ID, NOW_MS)
    (tmp_path / "again").mkdir()
    for suffix in ("", "-wal"):
        (killed / f"old.db{suffix}").rename(tmp_path / "again" / f"namesrv.db{suffix}")
    async with name_server("", tmp_path / "again") as stub:
        assert {one.name for one in (await stub.ListTopics(pb.ListTopicsRequest())).topics} == {"t", "last"}


async def test_a_backup_takes_the_place_of_nothing_but_a_backup(tmp_path: Path) -> None:
    """In particular it does not overwrite the database, whose path is easily given by mistake."""
    folder, file, note = tmp_path / "data", tmp_path / "directory.backup", tmp_path / "note"
    note.write_text("something else\n")
    async with name_server("", folder) as stub:
        await stub.RegisterEnode(ENODE)
        await stub.CreateTopic(pb.CreateTopicRequest(name="t"))
        for wrong in (folder / "namesrv.db", note):
            before = wrong.read_bytes()
            with pytest.raises(Conflict, match="is not a backup of a directory; give another file"):
                backup("", folder, wrong)
            assert wrong.read_bytes() == before
        for _ in range(2):
            backup("", folder, file)
    async with name_server("", folder) as stub:
        assert [one.name for one in (await stub.ListTopics(pb.ListTopicsRequest())).topics] == ["t"]
