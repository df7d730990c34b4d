"""`ortoo-enode inspect` and `repair`: read without writing, and execute only the shown steps."""

import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import get_type_hints

import pytest

from ortoo.common.errors import Conflict, DataLoss, Invalid, NotFound
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.disk.identity import read_identity
from ortoo.enode.log.frame import FrameHeader
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.log.segment import segment_name
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.offline import inspect, repair
from ortoo.enode.recovery.restored import read_openings_gap
from ortoo.enode.replication.membership import ReplicaMembership
from ortoo.enode.store.lock_table import LockGranted, LockRequest
from ortoo.testing.disks.disk_image import KEEP_UNSYNCED
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.store.single_store import SingleStore, open_single_store
from ortoo.verification.store.workload import FOLDER
from tests.contract.one_store import OneStore

SETTINGS = StoreSettings(
    segment_bytes=16 << 10, headroom_bytes=0, retention_age_ms=0, retention_bytes=40_000, retention_interval_ms=5
)


async def opened(folder: Path) -> SingleStore:
    """Open the store."""
    return await open_single_store(
        folder, settings=SETTINGS, disk=RealDisk(), clock=SystemClock(), randomness=Randomness(1)
    )


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A closed store whose first segments are deleted."""
    store = await opened(tmp_path)
    await store.put_topics([TopicCopy(1, "orders", 2, 1)])
    await store.offsets.commit(1, "billing", {0: 7})
    number = 0
    while store.describe().log_begin_position == 0:
        data = b"%08d" % number * 50
        await store.append(1, 0, SealedBatch(data, crc32c(data), 2, 400, 9, number * 2))
        number += 1
    await store.close()
    return tmp_path


def bytes_of(folder: Path) -> dict[str, bytes]:
    """All files."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def lines_of(folder: Path, *options: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> list[dict[str, object]]:
    """The output of `inspect`, which changes nothing."""
    before = bytes_of(folder)
    assert inspect.main([str(folder), *options]) == code
    assert bytes_of(folder) == before
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def lose_checkpoints(folder: Path) -> None:
    """Remove the caches and damage every checkpoint frame."""
    for file in [*folder.glob("*.idx"), folder / "clean"]:
        file.unlink()
    for file in folder.glob("*.seg"):
        data = bytearray(file.read_bytes())
        for place in range(0, len(data), 64):
            if data[place : place + 4] == b"ORTO" and data[place + 6] == 3:
                data[place] = 0
        file.write_bytes(data)


def kinds(lines: list[dict[str, object]], kind: str) -> Iterator[dict[str, object]]:
    """The lines of one type."""
    return (line for line in lines if line["type"] == kind)


def test_a_store_is_read_without_a_server(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Segments, topics, offsets, queues, windows and frames, one JSON line each; all bytes verified."""
    lines = lines_of(folder, "--verify", "--state", "--frames", capsys=capsys)
    assert next(kinds(lines, "store"))["enode"] == "enode-0"
    assert next(kinds(lines, "topic"))["name"] == "orders"
    assert next(kinds(lines, "offsets"))["offsets"] == {"0": "7"}
    assert next(kinds(lines, "window"))["producer_id"] == "9"
    assert sum(1 for _ in kinds(lines, "segment")) >= 2
    frames = list(kinds(lines, "frame"))
    assert next(kinds(lines, "verified"))["frames"] == str(len(frames))
    assert {frame["kind"] for frame in frames} >= {"messages", "checkpoint", "mark"}
    message = next(frame for frame in frames if frame["kind"] == "messages")
    message_id = f"{message['topic_id']}-enode-0-{message['queue_id']}-{int(str(message['first_offset'])) + 1}"
    (found,) = lines_of(folder, "--message", message_id, capsys=capsys)
    assert (found["position"], found["row"]) == (message["position"], 1)


@pytest.mark.parametrize("field", sorted({*FrameHeader._fields} - {"magic", "kind", "version"}))
def test_integers_of_64_bits_are_texts(field: str) -> None:
    """Integers of 64 bits in a frame's header are strings, and shorter ones numbers."""
    code = get_type_hints(FrameHeader, include_extras=True)[field].__metadata__[0]
    assert (field in inspect.NUMBERS) == (code in "BHI"), code


def test_damage_is_found_by_verify(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A flipped byte in a body is found only when all bytes are read; the exit code is 3."""
    file = sorted(folder.glob("*.seg"))[0]
    data = bytearray(file.read_bytes())
    repeated = re.search(rb"(\d{8})\1{9}", data)  # a body, and no text of a checkpoint that has zeros too
    assert repeated is not None
    at = repeated.start()
    data[at] ^= 1
    file.write_bytes(data)
    assert not list(kinds(lines_of(folder, capsys=capsys), "damage"))
    (damage,) = kinds(lines_of(folder, "--verify", capsys=capsys, code=3), "damage")
    assert damage["file"] == file.name
    assert damage["queues"]


def test_wrong_arguments_are_named(tmp_path: Path, folder: Path) -> None:
    """A folder without a log, an id of another kind, a message that does not exist."""
    with pytest.raises(NotFound):
        inspect.main([str(folder / "nowhere")])
    with pytest.raises(Invalid):
        inspect.main([str(folder), "--message", "abc"])
    with pytest.raises(NotFound):
        inspect.main([str(folder), "--message", "0000000000000001-enode-0-1-99"])


async def test_an_open_store_is_not_repaired(folder: Path) -> None:
    """The folder's lock keeps the tool out."""
    store = await opened(folder)
    with pytest.raises(Conflict):
        repair.main([str(folder), "--caches", "--apply"])
    await store.close()


async def test_repair_shows_before_it_does(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without `--apply` nothing changes; with it the caches are removed, and the next start rebuilds them."""
    before = bytes_of(folder)
    assert repair.main([str(folder)]) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    assert repair.main([str(folder), "--caches"]) == 3
    assert bytes_of(folder) == before
    assert repair.main([str(folder), "--caches", "--apply"]) == 0
    assert {name for name in bytes_of(folder) if not name.endswith(".seg")} == {
        "begin",
        "durable",
        "identity",
        "outline",
        "reign",
        "serials",
    }
    store = await opened(folder)
    assert store.offsets.of(1, "billing") == {0: 7}
    await store.close()


async def test_a_log_without_a_checkpoint_starts_again_when_the_loss_is_accepted(folder: Path) -> None:
    """The state of missing segments is dropped only on demand, and afterwards a crash loses nothing, as before."""
    lose_checkpoints(folder)
    with pytest.raises(DataLoss, match="--without-checkpoint"):
        await opened(folder)
    assert repair.main([str(folder)]) == 3
    assert repair.main([str(folder), "--without-checkpoint", "--apply"]) == 0
    store = await opened(folder)
    await store.put_topics([TopicCopy(1, "orders", 2, 1)])
    end = store.describe_queues(1)[0].end_offset
    assert end > 20
    await store.append(1, 0, SealedBatch(b"x", crc32c(b"x"), 1, 1))
    await store.close()
    (folder / "clean").unlink()
    store = await opened(folder)
    assert store.describe_queues(1)[0].end_offset == end + 1
    await store.close()


async def test_a_log_can_be_cut_at_a_frame(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log is truncated at a position, with later segments; a position inside a frame is refused."""
    frames = list(kinds(lines_of(folder, "--frames", capsys=capsys), "frame"))
    middle = int(str(frames[len(frames) // 2]["position"]))
    with pytest.raises(Invalid):
        repair.main([str(folder), "--cut", str(middle + 64), "--apply"])
    assert repair.main([str(folder), "--cut", str(middle), "--apply"]) == 0
    capsys.readouterr()
    left = list(kinds(lines_of(folder, "--frames", capsys=capsys), "frame"))
    assert [one["position"] for one in left] == [one["position"] for one in frames[: len(frames) // 2]]


async def test_what_is_given_up_is_nobodys_any_more(folder: Path) -> None:
    """G10: an owner of a lock, or a producer, with state of the removed end starts again, as after any such loss."""
    store = await opened(folder)
    key = (1, "billing", 0)
    [kept] = await store.locks.take([LockRequest(key, "client", "session")])
    position, opening = store.engine.appender.durable_position, store.describe().store_open_number
    await store.locks.fence([key], lambda _: [])
    [lost] = await store.locks.take([LockRequest(key, "client", "other session")])
    await store.close()
    assert repair.main([str(folder), "--cut", str(position), "--apply"]) == 0
    store = await opened(folder)
    [after] = await store.locks.take([LockRequest(key, "client", "third session")])
    assert isinstance(kept, LockGranted)
    assert isinstance(lost, LockGranted)
    assert isinstance(after, LockGranted)
    assert after.generation > lost.generation > kept.generation
    assert store.describe().store_open_number > opening + 1_000
    await store.close()


async def test_name_servers_accept_a_cut_store_after_an_interruption_between_any_two_writes() -> None:
    """They refuse a shorter log under the former id. The next start, or the repeated command, completes the new id."""
    one = OneStore()
    await one.open()
    await one.append(b"a message")
    await one.store.close()
    identity = read_identity(one.disk, FOLDER)
    assert identity is not None
    assert isinstance(one.disk.inner, MemoryDisk)

    def cut(disk: Disk) -> None:
        for step in repair.remove_caches(disk, FOLDER, one.clock, Randomness(2), discards_end=True):
            step.run()

    whole = one.disk.inner.after_crash(Randomness(1), KEEP_UNSYNCED, record=True)
    cut(whole)
    assert len(whole.operations) > 10
    for done, is_repeated in product(range(len(whole.operations) + 1), (False, True)):
        left = one.disk.after_crash(Randomness(1), KEEP_UNSYNCED)
        for operation in whole.operations[:done]:
            left.apply(operation)
        if is_repeated:
            cut(left)
        kept = ReplicaMembership(left, FOLDER, one.clock, Randomness(4)).stored
        renewed = read_identity(left, FOLDER)
        assert renewed is not None
        assert renewed.store_id == kept.set_id
        is_cut = kept.set_id != identity.store_id
        assert is_cut or not is_repeated
        if is_cut:
            assert renewed.made_from == identity.store_id
            assert renewed.begins_anew
            assert read_openings_gap(left, FOLDER)


async def test_a_stray_beside_a_log_that_is_gone_is_no_log(folder: Path) -> None:
    """The steps for an empty log work with any other files in the folder."""
    for file in folder.glob("*.seg"):
        file.unlink()
    (folder / segment_name(3)).write_bytes(b"x" * 100)
    with pytest.raises(DataLoss, match="--caches"):
        await opened(folder)
    assert repair.main([str(folder), "--caches", "--apply"]) == 0
    store = await opened(folder)
    assert store.describe().segment_count == 1
    await store.close()


def test_a_lost_identity_is_written_again(folder: Path) -> None:
    """After a damaged `identity` the operator names the owner."""
    (folder / "identity").unlink()
    assert repair.main([str(folder), "--identity", "default", "enode-0", "--apply"]) == 0
    assert b'"enode": "enode-0"' in (folder / "identity").read_bytes()
