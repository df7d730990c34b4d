"""Searching by key and by id: hashes, files, and a whole store."""

import asyncio
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.errors import Invalid, NotFound
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import Message, encode
from ortoo.enode.disk.atomic_files import DamagedFile
from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.index.key_index import (
    KIND_KEY,
    KIND_MESSAGE_ID,
    KeyEntries,
    KeyIndexFile,
    encode_keys,
    text_hash,
    unpacked,
)
from ortoo.enode.index.key_process import KeyIndexProcess
from ortoo.enode.index.key_search import FoundMessage, KeyQuery, LogStretch
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.log.settings import StoreSettings
from ortoo.verification.store.single_store import SingleStore, open_single_store

SETTINGS = StoreSettings(segment_bytes=32 << 10, headroom_bytes=0, retention_age_ms=0)


batches = st.lists(st.lists(st.text("aö€🐎z", max_size=6).filter(bool), max_size=3), min_size=1, max_size=8)


@given(st.lists(batches, min_size=1, max_size=4))
def test_many_hashes_at_once_are_those_of_one(some: list[list[list[str]]]) -> None:
    """The hashes made for many batches at once are the hashes of their keys, each with its batch and row."""
    entries = KeyEntries(640)
    expected = []
    for number, keys in enumerate(some):
        messages = [Message(b"x", None, tuple(of_row), message_id=f"id-{row}") for row, of_row in enumerate(keys)]
        position, topic_id = 640 + number * 64, number % 2
        entries.add(position, encode(messages, now_ms=1).records, topic_id)
        for row, of_row in enumerate(keys):
            expected.append((text_hash(f"id-{row}".encode(), topic_id, KIND_MESSAGE_ID), (position, row)))
            expected += [(text_hash(key.encode(), topic_id, KIND_KEY), (position, row)) for key in of_row]
    for wanted, _ in expected:
        assert entries.find(wanted) == sorted(place for value, place in expected if value == wanted)
    hashes, places = entries.sorted()
    assert list(zip(hashes.tolist(), unpacked(640, places), strict=True)) == sorted(expected)


def test_messages_with_the_same_key_are_sorted_by_position() -> None:
    """Very many messages share a few keys; the entries of each key are in the order of the log."""
    entries, expected = KeyEntries(0), []
    for number in range(40):
        keys = [f"key-{(number + row) % 3}" for row in range(500)]
        entries.add(number * 64, encode([Message(b"x", None, (key,)) for key in keys], now_ms=1).records, 1)
        expected += [(text_hash(key.encode(), 1, KIND_KEY), (number * 64, row)) for row, key in enumerate(keys)]
    hashes, places = entries.sorted()
    assert list(zip(hashes.tolist(), unpacked(0, places), strict=True)) == sorted(expected)


def test_topics_and_kinds_do_not_mix() -> None:
    """The same text as a key of two topics and as an id has three hashes."""
    assert len({text_hash(b"a", 1, KIND_KEY), text_hash(b"a", 2, KIND_KEY), text_hash(b"a", 1, KIND_MESSAGE_ID)}) == 3


def test_bytes_that_are_no_batch_have_no_keys_and_harm_no_others() -> None:
    """Damaged data in the log does not stop the indexing; only a column with falling offsets is left out."""
    good = encode([Message(b"x", None, ("k",)), Message(b"y", None, ("kk", "k"))], now_ms=1).records
    falling = good.replace(bytes((0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0)), bytes((0, 0, 0, 0, 9, 0, 0, 0, 3, 0, 0, 0)))
    assert falling != good
    entries = KeyEntries(0)
    for position, data in enumerate((b"", b"\xff" * 40, good[:-3], falling, good)):
        entries.add(position * 64, data, 1)
    assert entries.find(text_hash(b"kk", 1, KIND_KEY)) == [(256, 1)]
    assert entries.find(text_hash(b"k", 1, KIND_KEY)) == [(256, 0), (256, 1)]


def test_a_key_file_finds_what_was_put_in_and_notices_damage() -> None:
    """Every entry is found through the fences, also when many share a hash over several blocks."""
    hashes = np.sort(np.concatenate([np.arange(0, 3000, 3, dtype=np.uint64), np.full(700, 1500, np.uint64)]))
    places = np.arange(len(hashes), dtype=np.uint64) << np.uint64(12)
    data = encode_keys(640, 9_999_999, hashes, places)

    def read(position: int, length: int) -> bytes:
        return data[position : position + length]

    fences = KeyIndexFile(read, len(data), 640)
    assert len(fences.find(1500)) == 701
    assert fences.find(1501) == []
    assert fences.find(5) == []
    for wanted in (0, 3, 1497, 1503, 2997):
        ((position, row),) = fences.find(wanted)
        at = (position - 640) // 64
        assert (hashes[at], row) == (wanted, 0)
    bad = data[:100] + b"\xff" + data[101:]
    with pytest.raises(DamagedFile):
        KeyIndexFile(lambda position, length: bad[position : position + length], len(bad), 640).find(0)
    with pytest.raises(DamagedFile):
        KeyIndexFile(read, len(data) + 1, 640)
    assert KeyIndexFile(lambda at, n: encode_keys(0, 64, *KeyEntries(0).sorted())[at : at + n], 36 + 4, 0).find(7) == []


async def opened(folder: Path, settings: StoreSettings = SETTINGS) -> SingleStore:
    """A store with two topics."""
    store = await open_single_store(
        folder, settings=settings, disk=RealDisk(), clock=SystemClock(), randomness=Randomness(1)
    )
    await store.put_topics([TopicCopy(1, "a", 2, 1), TopicCopy(2, "b", 1, 1)])
    return store


async def filled(folder: Path, settings: StoreSettings = SETTINGS) -> SingleStore:
    """150 batches of four messages over several segments; message n has the keys n and n mod 10, and an id."""
    store = await opened(folder, settings)
    for number in range(0, 600, 4):
        messages = [
            Message(b"." * 100, None, (f"order-{n}", f"mod-{n % 10}"), message_id=f"id-{n}")
            for n in range(number, number + 4)
        ]
        await store.append(1, number // 4 % 2, encode(messages, now_ms=1))
    await store.append(2, 0, encode([Message(b"other", None, ("order-5",))], now_ms=1))
    return store


def place_of(number: int) -> tuple[int, int]:
    """(queue, offset) of message n."""
    return number // 4 % 2, number // 8 * 4 + number % 4


@pytest.mark.parametrize("threads", [True, False])
async def test_messages_are_found_by_key_and_by_id(tmp_path: Path, threads: bool) -> None:
    """E-213: in sealed segments and in the active one, newest first, with a limit and within a time."""
    settings = StoreSettings(segment_bytes=32 << 10, headroom_bytes=0, retention_age_ms=0, threads=threads)
    store = await filled(tmp_path, settings)
    assert store.describe().segment_count > 3
    for number in (0, 5, 299, 598):
        for found in (
            await store.find_messages(1, key=f"order-{number}"),
            await store.find_messages(1, message_id=f"id-{number}"),
        ):
            assert [(one.queue_id, one.offset) for one in found] == [place_of(number)]
    assert await store.find_messages(1, key="id-5") == []
    assert [one.offset for one in await store.find_messages(2, key="order-5")] == [0]
    many = await store.find_messages(1, key="mod-3", limit=1000)
    assert [(one.queue_id, one.offset) for one in many] == [place_of(n) for n in range(593, -1, -10)]
    assert await store.find_messages(1, key="mod-3", limit=7) == many[:7]
    begin, end = many[40].stored_at_ms, many[20].stored_at_ms
    assert await store.find_messages(1, key="mod-3", begin_ms=begin, end_ms=end, limit=1000) == [
        one for one in many if begin <= one.stored_at_ms < end
    ]
    with pytest.raises(NotFound):
        await store.find_messages(9, key="a")
    with pytest.raises(Invalid):
        await store.find_messages(1)
    await store.close()


async def test_a_message_that_says_a_key_twice_is_found_once(tmp_path: Path) -> None:
    """E-213: in sealed segments and in the active one. A repeated key counts once within the limit."""
    store = await opened(tmp_path, StoreSettings(segment_bytes=32 << 10, headroom_bytes=0, retention_age_ms=0))
    for _ in range(80):
        await store.append(1, 0, encode([Message(b"." * 1_000, None, ("twice", "twice"))], now_ms=1))
    assert store.describe().segment_count > 1
    found = await store.find_messages(1, key="twice", limit=80)
    assert [one.offset for one in found] == list(range(79, -1, -1))
    await store.close()


async def test_key_files_are_made_again_when_they_are_missing_or_damaged(tmp_path: Path) -> None:
    """The files are caches: after any harm to them the answers are the same."""
    store = await filled(tmp_path)
    async with asyncio.timeout(60):
        while len(list(tmp_path.glob("*.keys"))) < store.describe().segment_count - 1:
            await store.fetch(1, 0, 300, wait_ms=5)
    expected: list[FoundMessage] = await store.find_messages(1, key="mod-3", limit=1000)
    await store.close()
    first, second, *_ = sorted(tmp_path.glob("*.keys"))
    first.unlink()
    data = bytearray(second.read_bytes())
    for at in range(40, len(data), 1_000):  # some byte of each block
        data[at] ^= 1
    second.write_bytes(data)
    store = await opened(tmp_path)
    assert await store.find_messages(1, key="mod-3", limit=1000) == expected
    await store.close()


async def test_the_process_that_searches_may_die(tmp_path: Path) -> None:
    """The process is restarted at the next request; its entries in memory are read again from the log."""
    await (await filled(tmp_path)).close()
    search = KeyIndexProcess(tmp_path)
    stretch = LogStretch(0, max(int(file.stem) for file in tmp_path.glob("*.seg")), is_sealed=False)
    query = KeyQuery(1, KIND_KEY, "order-5", 0, 1 << 62, 10)
    first = await search.find(query, [stretch])
    assert [one.offset for one in first] == [1]
    assert search.process_id
    os.kill(search.process_id, signal.SIGKILL)
    assert await search.find(query, [stretch]) == first
    await search.close()
    assert search.process_id == 0
