"""The bytes of a store, version 1: written unchanged, and readable permanently.

The folder `store-v1` is never changed. A new version of the format gets a folder and a file of its own.
"""

import asyncio
import re
import shutil
from dataclasses import replace
from pathlib import Path

import google_crc32c
import pytest

from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import Message, encode
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.disk.identity import StoreIdentity, read_identity
from ortoo.enode.index.catalog import SealedSegment
from ortoo.enode.log.frame import HEADER_BYTES, FrameFlag, FrameHeader, FrameKind
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.log.scan import walk
from ortoo.enode.log.settings import StoreSettings
from ortoo.verification.store.single_store import SingleStore, open_single_store

GOLDEN = Path(__file__).parent / "store-v1"
SETTINGS = StoreSettings(
    cluster="golden",
    enode="enode-a",
    segment_bytes=8192,
    headroom_bytes=0,
    recent_bytes=0,
    retention_age_ms=0,
    checkpoint_slice_bytes=256,
    threads=False,
)
TOPIC = 0x0123456789ABCDEF


class StillClock:
    """A clock that advances a millisecond with each read; sleepers never wake."""

    def __init__(self) -> None:
        """Begin in 2025."""
        self._now_ms = 1_735_689_600_000

    def now_ms(self) -> int:
        """One more with each call."""
        self._now_ms += 1
        return self._now_ms

    def monotonic_s(self) -> float:
        """Does not move."""
        return 0.0

    async def sleep(self, seconds: float) -> None:
        """Sleep forever."""
        await asyncio.get_running_loop().create_future()


async def opened(folder: Path) -> SingleStore:
    """Open a store whose every byte is determined."""
    return await open_single_store(
        folder, settings=SETTINGS, disk=RealDisk(), clock=StillClock(), randomness=Randomness(7)
    )


def bytes_of(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def batch(number: int, *, producer_id: int = 0, first_sequence: int = 0) -> SealedBatch:
    """The batch with this number: two messages with a key, the second with an id."""
    body = bytes((number * 31 + at) % 251 for at in range(30 + number % 5 * 50))
    messages = [Message(body, "t", (f"key-{number}",)), Message(b"second", None, (), message_id=f"id-{number}")]
    sealed = encode(messages, now_ms=1_735_689_600_000)
    return replace(sealed, producer_id=producer_id, first_sequence=first_sequence)


def checkpoint_at_each_segment(store: SingleStore) -> None:
    """Begin a checkpoint whenever a segment is full, as the version that wrote the golden store did."""
    keeping = store.engine.housekeeping
    honest = keeping.on_segment_sealed

    def sealed(one: SealedSegment) -> None:
        honest(one)
        keeping.checkpoints.due.set()

    keeping.on_segment_sealed = sealed  # type: ignore[method-assign, assignment]


async def write_store(folder: Path) -> None:
    """Write every kind of content: topics, batches, a producer, offsets, segments, checkpoints, a second opening."""
    store = await opened(folder)
    checkpoint_at_each_segment(store)
    await store.put_topics([TopicCopy(TOPIC, "orders", 3, 1), TopicCopy(2, "örtöö", 1, 2), TopicCopy(3, "gone", 1, 3)])
    for number in range(40):
        await store.append(TOPIC, number % 2, batch(number))
        if number % 8 == 0:
            await store.append(TOPIC, 2, batch(number, producer_id=99, first_sequence=number // 8 * 2))
            await store.offsets.commit(TOPIC, "billing", {0: number, 1: number // 2}, 4)
    await store.append(2, 0, batch(41))
    await store.delete_topics([3])
    await store.find_messages(TOPIC, key="key-0")
    await store.close()
    store = await opened(folder)
    await store.offsets.commit(2, "reports", {0: 1})
    await store.close()


async def test_the_same_store_is_written_byte_for_byte(tmp_path: Path) -> None:
    """Each file of the golden store is reproduced, except for what later versions added."""
    await write_store(tmp_path)
    written, golden = bytes_of(tmp_path), bytes_of(GOLDEN)
    identity = read_identity(RealDisk(), tmp_path)
    assert identity is not None
    # The record of the log's begin is newer than the sample: head (begin 0, queues known, none yet) and CRC.
    begin = as_it_was("begin", written.pop("begin"), identity)
    assert begin[:24].hex() == "4f525442010000000000000000000000" + "0100000000000000"
    for newer in ("serials", "reign", "outline", "identity"):
        written.pop(newer)
    assert written.keys() == golden.keys() - {"identity"}
    for name in written:
        assert as_it_was(name, written[name], identity) == golden[name], name


def as_it_was(name: str, data: bytes, identity: StoreIdentity) -> bytes:
    """A file as the sample's version wrote it.

    That version had no fingerprints in frames and no tags in heads. It had no replicas: a mark stood in the place of
    each EPOCH frame, and all frames were of epoch 0.
    """
    found = bytearray(data)
    if name.endswith(".seg"):
        base = int(name[:20])
        for one in walk(lambda at, length: data[at - base : at - base + length], base, base + len(data)):
            if not isinstance(one, FrameHeader):
                continue  # zeros behind the end
            former = one._replace(leader_epoch=0)
            if one.kind != FrameKind.MESSAGES:
                assert one.producer_id == identity.log_mark
                former = former._replace(producer_id=0)
            if one.kind == FrameKind.EPOCH:
                former = former._replace(kind=FrameKind.MARK, flags=FrameFlag.OPENED)
            at = one.position - base
            found[at : at + HEADER_BYTES] = former.encoded()
    else:
        assert int.from_bytes(found[6:8], "little") == identity.tag
        found[6:8] = bytes(2)
        checked = {"idx": 48, "keys": 32}.get(name.rpartition(".")[2], len(data) - 4)
        found[checked : checked + 4] = google_crc32c.value(bytes(found[:checked])).to_bytes(4, "little")
    return bytes(found)


def test_the_document_is_enough_to_read_a_segment() -> None:
    """E-210, E-211: a decoder made of the document's table alone reads all frames, their CRCs and dense offsets."""
    table = (Path(__file__).parents[3] / "docs" / "formats" / "log.md").read_text().split("\n## The frame", 1)[1]
    fields = {name: (int(at), int(width)) for at, width, name in re.findall(r"\| (\d+) \| (\d+) \| `(\w+)` \|", table)}
    next_offsets: dict[tuple[int, int], int] = {}
    texts: dict[tuple[int, int, int], bytes] = {}
    position = 0
    for segment in sorted(GOLDEN.glob("*.seg")):
        data, at = segment.read_bytes(), 0
        assert int(segment.stem) == position
        while data[at : at + 4] == b"ORTO":
            head = {name: int.from_bytes(data[at + place : at + place + width], "little")
                    for name, (place, width) in fields.items()}  # fmt: skip
            assert google_crc32c.value(data[at : at + 124]) == head["header_crc"]
            assert head["position"] == position
            body_at = at + 128 + head["prefix_length"]
            body = data[body_at : body_at + head["length"]]
            assert google_crc32c.value(body) == head["payload_crc"]
            if head["kind"] == 1:
                key = (head["topic_id"], head["queue_id"])
                assert head["first_offset"] == next_offsets.get(key, 0)
                next_offsets[key] = head["first_offset"] + head["item_count"]
                texts[*key, head["first_offset"]] = body
            step = (128 + head["prefix_length"] + head["length"] + 63) // 64 * 64
            at, position = at + step, position + step
    assert next_offsets[TOPIC, 0] == next_offsets[TOPIC, 1] == 40
    found = [texts[TOPIC, number % 2, number // 2 * 2] for number in range(40)]
    assert found == [batch(number).records for number in range(40)]


@pytest.mark.parametrize("without", [(), ("*.idx", "*.keys", "clean")])
async def test_the_golden_store_is_read(tmp_path: Path, without: tuple[str, ...]) -> None:
    """All content is read, with its caches and from its frames alone."""
    folder = tmp_path / "store"
    shutil.copytree(GOLDEN, folder)
    for pattern in without:
        for file in folder.glob(pattern):
            file.unlink()
    store = await opened(folder)
    assert [topic.name for topic in store.topics()] == ["örtöö", "orders"]
    for queue_id in (0, 1):
        found: list[SealedBatch] = []
        while (fetched := await store.fetch(TOPIC, queue_id, len(found) * 2)).batches:
            found += [one.batch for one in fetched.batches]
        assert found == [batch(number) for number in range(queue_id, 40, 2)]
    assert store.offsets.of(TOPIC, "billing") == {0: 32, 1: 16}
    assert store.offsets.of(2, "reports") == {0: 1}
    again = await store.append(TOPIC, 2, batch(32, producer_id=99, first_sequence=8))
    assert again.first_offset == 8
    assert [one.offset for one in await store.find_messages(TOPIC, key="key-8")] == [2, 8]
    assert [one.offset for one in await store.find_messages(TOPIC, message_id="id-39")] == [39]
    assert store.describe().store_open_number == 3
    assert not store.describe().damages
    await store.close()
