"""The current version opens stores of earlier versions, and finds all of their content."""

import asyncio
import dataclasses
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ortoo.common.directory.group import Group
from ortoo.common.groups.pop import Finish, LeasePart, PopRequest, PopRules
from ortoo.common.process.background import Background
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import encode, open_batch
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.appends.deduplicated import DeduplicatedAppends
from ortoo.enode.appends.router import AppendRouter
from ortoo.enode.delays.scheduler import DelayScheduler
from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.pops.leasing import PopLeasing
from ortoo.enode.store.store import Store
from ortoo.enode.transactions.checks import CheckSchedule
from ortoo.enode.transactions.coordinator import TransactionCoordinator
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.decisions.topics import Topic
from ortoo.namesrv.directory.directory import Directory
from ortoo.verification.store.single_store import SingleStore, open_single_store

STORES = Path(__file__).parent / "stores"
COMMITS = sorted(folder.name for folder in STORES.iterdir())
ORDERS, JOBS, LETTERS = 0x0123456789ABCDEF, 2, 3
BORN_AT_MS = 1_735_689_600_000
WEEK_MS = 7 * 86_400_000
CACHES = {"whole": (), "killed": ("clean",), "bare": ("clean", "*.idx", "*.keys")}
"""Files to remove before the open: none, the marker of the clean stop, or every file that is only a cache."""


class SetClock:
    """A clock that shows a given time; sleepers never wake."""

    def __init__(self, now_ms: int) -> None:
        self.at_ms = now_ms

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_s(self) -> float:
        return self.at_ms / 1000

    async def sleep(self, seconds: float) -> None:
        await asyncio.get_running_loop().create_future()


@dataclasses.dataclass
class OldStore:
    """An open store of an older version, and the content that the older version found in it."""

    store: SingleStore
    clock: SetClock
    expected: dict[str, Any]
    background: Background


@pytest.fixture(params=[(commit, kind) for commit in COMMITS for kind in CACHES], ids="-".join)
async def old(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OldStore]:
    """A copy of each store, in each condition."""
    commit, kind = request.param
    async with opened(commit, kind, tmp_path) as found:
        yield found


@asynccontextmanager
async def opened(commit: str, kind: str, tmp_path: Path) -> AsyncIterator[OldStore]:
    """Open a copy of a store."""
    folder = tmp_path / "enode"
    shutil.copytree(STORES / commit / "enode", folder)
    for pattern in CACHES[kind]:
        for file in folder.glob(pattern):
            file.unlink()
    expected = json.loads((STORES / commit / "expected.json").read_text())["enode"]
    settings = StoreSettings(
        cluster="sample", enode="enode-a", segment_bytes=8192, headroom_bytes=0, retention_age_ms=0, threads=False
    )
    clock = SetClock(expected["now_ms"])
    store = await open_single_store(folder, settings=settings, disk=RealDisk(), clock=clock, randomness=Randomness(8))
    try:
        async with Background("old") as background:
            yield OldStore(store, clock, expected, background)
    finally:
        await store.close()


async def bodies(store: Store, topic_id: int) -> list[list[Any]]:
    """[queue id, offset, stored at, body] of each message that readers see."""
    found: list[list[Any]] = []
    for queue in store.describe_queues(topic_id):
        offset = queue.begin_offset
        while offset < queue.end_offset:
            fetched = await store.fetch(topic_id, queue.queue_id, offset)
            for one in fetched.batches:
                texts = [bytes(body).decode() for body in open_batch(one.batch).bodies()]
                found += [
                    [queue.queue_id, one.first_offset + at, one.stored_at_ms, text] for at, text in enumerate(texts)
                ]
            offset = fetched.next_offset
    return found


def batch(body: str) -> SealedBatch:
    """The sample's batch of one message."""
    message = Message(body.encode(), "tag", (f"key-{body}",), properties={"at": body})
    return encode([message], now_ms=BORN_AT_MS)


async def test_every_message_lies_where_it_lay(old: OldStore) -> None:
    """Topics, ranges of queues, and each body with its offset and time, exactly; there is no damage."""
    store, expected = old.store, old.expected
    assert not store.describe().damages
    assert [list(dataclasses.astuple(one)) for one in store.topics()] == [
        [*row, ""][:5]
        for row in expected["topics"]  # in the oldest store, directories had no id
    ]
    for topic_id in (ORDERS, JOBS, LETTERS):
        queues = [list(dataclasses.astuple(one)) for one in store.describe_queues(topic_id)]
        assert queues == expected["queues"][str(topic_id)]
    for topic_id in (ORDERS, JOBS):
        assert await bodies(store, topic_id) == expected["bodies"][str(topic_id)]
    found = await store.find_messages(ORDERS, key="key-order-7")
    assert [[1, one.offset, one.stored_at_ms, "order-7"] for one in found] == [
        row for row in expected["bodies"][str(ORDERS)] if row[3] == "order-7"
    ]


async def test_the_state_is_the_same_byte_for_byte(old: OldStore) -> None:
    """Offsets, modes, locks, windows, ids, leases, timers and transactions, encoded as by the older version."""
    store, expected = old.store, old.expected
    assert sorted(one.hex() for one in store.engine.state.checkpoint()) == expected["state"]
    offsets = {
        queue_id: store.offsets.of(ORDERS, "billing")[int(queue_id)] for queue_id in expected["offsets"]["billing"]
    }
    assert offsets == expected["offsets"]["billing"]
    for group, modes in expected["modes"].items():
        assert [[topic_id, int(mode)] for topic_id, mode in store.modes.of_group(group)] == modes
    ((queue_id, lock, _),) = store.locks.of_group(ORDERS, "billing")
    assert [queue_id, lock.generation, lock.owner, lock.session_id] == expected["lock"]


async def test_what_waits_still_waits(old: OldStore) -> None:
    """Delayed messages by number and time, open transactions with their checks; one of them can be committed."""
    store, expected = old.store, old.expected
    transactions = TransactionCoordinator(store, old.background, CheckSchedule(6_000, 30_000, 15), clock=old.clock)
    delayed = store.timers.select(ORDERS, 0, 100)
    assert [[one.timer_id, ORDERS, one.queue_id, one.deliver_at_ms] for one in delayed] == expected["delayed"]
    halves = store.halves.select(topic_id=0, producer_group="", parked_only=False, limit=100)
    assert [dataclasses.asdict(one) for one in halves] == expected["halves"]
    pair = encode([Message(b"other")] * 2, now_ms=BORN_AT_MS)  # the same number of messages
    again = await transactions.begin(ORDERS, 0, pair, producer_group="shop", key=77)
    assert again.number == expected["half"]


async def test_what_was_sent_before_is_known_again(old: OldStore) -> None:
    """A numbered batch and a message with an id get their first offset and are not stored a second time."""
    store, expected = old.store, old.expected
    numbered = dataclasses.replace(batch("numbered-2"), producer_id=99, first_sequence=2)
    stored = await store.append(ORDERS, 2, numbered)
    assert [stored.first_offset, stored.stored_at_ms] == expected["numbered"]
    intake = AppendRouter(
        store,
        DelayScheduler(store, old.background, clock=old.clock),
        TransactionCoordinator(store, old.background, CheckSchedule(6_000, 30_000, 15), clock=old.clock),
    )
    identified = DeduplicatedAppends(store, intake, old.background, old.clock, window_ms=WEEK_MS)
    (place,) = await identified.append(JOBS, 0, batch("once"), ["payment-1"])
    assert [place.queue_id, place.offset, place.stored_at_ms] == expected["identified"]
    assert place.duplicate


async def test_leased_messages_stay_with_their_consumer_until_their_time(old: OldStore) -> None:
    """Only the other messages are popped. A lease is acknowledged by its number; an expired one has attempt 2."""
    desk = PopLeasing(old.store, old.clock, old.background)
    rules = PopRules(attempts_max=3, dead_letter_topic_id=LETTERS)
    wish = PopRequest(JOBS, "workers", (0,), 100, 36_000_000, 1 << 20, 0, "worker-2", "", rules)
    first, second = old.expected["leases"]
    leased = [offset for pop in (first, second) for one in pop["leases"] for offset in one["offsets"]]
    stored = [row[1] for row in old.expected["bodies"][str(JOBS)] if row[0] == 0]
    popped = await desk.pop(wish)
    assert sorted(offset for one in popped.batches for offset in one.offsets) == sorted({*stored} - {*leased})
    parts = [LeasePart(0, one["number"], tuple((offset, 1) for offset in one["offsets"])) for one in second["leases"]]
    assert await desk.settle(JOBS, "workers", parts, Finish()) == []
    old.clock.at_ms = first["begun_at_ms"] + first["invisible_ms"] + 1_000
    popped = await desk.pop(wish)
    back = [
        (offset, attempt) for one in popped.batches for offset, attempt in zip(one.offsets, one.attempts, strict=True)
    ]
    assert back == [(offset, 2) for one in first["leases"] for offset in one["offsets"]]
    await desk.lines.close()


RENAMED_FIELDS = {"first_ms": "first_delay_ms", "longest_ms": "delay_max_ms", "listed_ms": "listed_delays_ms"}
"""Fields of a retry policy: the former name and the present one. The stored form has none of them."""


def defaults_of(kind: type[Group | Topic]) -> dict[str, Any]:
    """The default of each field that has a plain one."""
    return {one.name: one.default for one in dataclasses.fields(kind) if one.default is not dataclasses.MISSING}


@pytest.mark.parametrize("commit", COMMITS)
async def test_a_directory_keeps_topics_groups_and_users(commit: str, tmp_path: Path) -> None:
    """Each with all its fields, after all migrations of this version."""
    folder = tmp_path / "namesrv"
    shutil.copytree(STORES / commit / "namesrv", folder)
    expected = json.loads((STORES / commit / "expected.json").read_text())["namesrv"]
    catalog = await Catalog.open("", folder, "00000000-0000-4000-8000-000000000001")
    try:
        clock, stored = SetClock(BORN_AT_MS), await catalog.load_all()
        directory = Directory(
            catalog,
            stored,
            lease_s=30,
            deletion_grace_ms=0,
            watchers_max=10,
            clock=clock,
            randomness=Randomness(8),
        )
        found = {
            "version": directory.version,
            "topics": [dataclasses.asdict(one) for _, one in sorted(directory.topics.items())],
            "groups": [dataclasses.asdict(one) for _, one in sorted(directory.groups.items())],
            "users": [dataclasses.asdict(one) for one in await catalog.run_user_transaction(lambda users: users.all())],
        }
        for group in expected["groups"]:
            group["auto_created"] = group.pop("by_use", False)  # all were declared, as far as is recorded
            group["retry"] = {RENAMED_FIELDS.get(name, name): value for name, value in group["retry"].items()}
        # A setting that is newer than the directory has its default, which means that nothing changed.
        expected["groups"] = [defaults_of(Group) | group for group in expected["groups"]]
        expected["topics"] = [defaults_of(Topic) | topic for topic in expected["topics"]]
        assert json.loads(json.dumps(found)) == json.loads(json.dumps(expected))
    finally:
        await catalog.close()
