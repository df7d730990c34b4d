"""All or nothing: a request of several changes that is refused has stored none of them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from ortoo.common.errors import Overloaded
from ortoo.common.groups.pop import Finish, LeasePart, Redeliver, Renew, ReplayRequest, RetryRequest
from ortoo.common.process.background import Background
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.enode.appends.router import AppendRouter
from ortoo.enode.changes.groups import GroupMode
from ortoo.enode.changes.kinds import StateChange
from ortoo.enode.delays.scheduler import DelayScheduler
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.pops.reading import BatchCache
from ortoo.enode.pops.retry_copies import RetryCopies
from ortoo.enode.store.engine import Engine
from ortoo.enode.store.lock_table import LockGranted, LockRequest
from ortoo.enode.transactions.checks import CheckSchedule
from ortoo.enode.transactions.coordinator import TransactionCoordinator
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.v1 import enode_pb2
from ortoo.verification.time.virtual_clock import VirtualClock
from tests.contract.one_store import SETTINGS, TOPIC, OneStore
from tests.contract.pop_store import DEAD_LETTERS, GROUP, PopStore

MANY = 60
RETRIES = 7
LONG = "x" * 100
"""A text long enough that a few changes fill the rest of a segment."""
Held = list[tuple[int, int]]
"""(lease number, offset)."""
Request = Callable[[PopStore, Held], Awaitable[object]]


async def put_topics(it: PopStore, held: Held) -> None:
    """Copies of many topics."""
    await it.store.put_topics([TopicCopy(100 + number, f"{LONG}{number}", 1, 1) for number in range(MANY)])


async def delete_topics(it: PopStore, held: Held) -> None:
    """The deletion of many topics."""
    await it.store.delete_topics(one.topic_id for one in it.store.topics() if one.name.startswith("going"))


async def commit_each(it: PopStore, held: Held) -> None:
    """Offsets under many generations."""
    rows = [(number, 5, TOPIC + 1 + number) for number in range(MANY)]
    await it.store.offsets.commit_each(TOPIC, f"group {LONG}", rows)


async def reset_offsets(it: PopStore, held: Held) -> None:
    """An operator's reset of many queues."""
    await it.store.offsets.reset(TOPIC, f"group {LONG}", dict.fromkeys(range(MANY), 3))


async def take_locks(it: PopStore, held: Held) -> None:
    """Locks of many owners, with the mode that they set."""
    requests = [LockRequest((TOPIC, "lockers", number), f"{LONG}{number}", "session") for number in range(MANY)]
    with it.store.modes.decide([(TOPIC, "lockers")], GroupMode.OFFSETS) as (decided, _):
        await it.store.locks.take(requests, decided)


async def release_locks(it: PopStore, held: Held) -> None:
    """Release of the locks of many owners."""
    await it.store.locks.release([((TOPIC, f"holder {number}", 0), "session") for number in range(MANY)])


async def _settle(it: PopStore, held: Held, verdict: Finish | Redeliver | Renew) -> None:
    parts = [LeasePart(0, number, ((offset, 1),)) for number, offset in held]
    await it.leasing.settle(TOPIC, GROUP, parts, verdict)


async def finish_popped(it: PopStore, held: Held) -> None:
    """Many messages acknowledged, none beside another: those of a queue are one change with many ranges."""
    await _settle(it, held[::2], Finish())


async def give_back_popped(it: PopStore, held: Held) -> None:
    """Nacks of many messages, each with its reason."""
    await _settle(it, held, Redeliver((5_000,), error=LONG, consumer="c", rules=it.rules))


async def renew_popped(it: PopStore, held: Held) -> None:
    """Many leases extended."""
    await _settle(it, held, Renew(60_000))


def _sending(it: PopStore) -> RetryCopies:
    """The component that makes retry copies in the currently open store."""
    store, clock, background = it.store, it.one.clock, it.background
    transactions = TransactionCoordinator(store, background, CheckSchedule(1_000, 1_000, 3), clock=clock)
    intake = AppendRouter(store, DelayScheduler(store, background, clock=clock), transactions)
    return RetryCopies(store, BatchCache(store), intake, clock, background)


async def send_back_now(it: PopStore, held: Held) -> None:
    """Retry copies of many messages by offset."""
    await _sending(it).retry(RetryRequest("puller", TOPIC, 0, tuple(range(MANY)), RETRIES, (0,), False, it.rules))


async def send_back_later(it: PopStore, held: Held) -> None:
    """Retry copies of many messages, delayed."""
    wish = RetryRequest("puller", TOPIC, 0, tuple(range(MANY)), RETRIES, (86_400_000,), False, it.rules)
    await _sending(it).retry(wish)


async def park_sent_back(it: PopStore, held: Held) -> None:
    """Many messages parked by offset."""
    await _sending(it).retry(RetryRequest("puller", TOPIC, 0, tuple(range(MANY)), RETRIES, (0,), True, it.rules))


async def replay(it: PopStore, held: Held) -> None:
    """Many dead letters resent, to all queues of a topic."""
    await _sending(it).replay(ReplayRequest(DEAD_LETTERS, "replayer", ((0, MANY),), TOPIC, False))


REQUESTS: dict[Request, str] = {
    put_topics: "",
    delete_topics: "",
    commit_each: "CommitOffsets",
    reset_offsets: "CommitOffsets",
    take_locks: "TakeLocks",
    release_locks: "ReleaseLocks",
    finish_popped: "SettlePopped",
    give_back_popped: "SettlePopped",
    renew_popped: "SettlePopped",
    send_back_now: "RetryMessages",
    send_back_later: "RetryMessages",
    park_sent_back: "RetryMessages",
    replay: "ReplayStored",
}
"""Each request of several changes, and the method of EnodeService that makes it; "" = the name server's watch."""
ROOM_FOR_SOME_BYTES = {"RetryMessages": 2_000, "ReplayStored": 2_000}
"""The free disk space for methods with large single changes: enough for some of them, not for all."""
OTHERS = {
    "QueryOffsets": "reads",
    "DescribeQueuesOfTopics": "reads",
    "MeasureQueues": "reads",
    "ListLagSamples": "reads",
    "TrimQueues": "fences locks and stores its changes as ResetOffsets does, which `reset_offsets` tests",
    "PopQueues": "leases as many messages as fit, and does not wait for the disk",
    "WatchHalves": "reads",
    "RecordInterruptions": "stores nothing on the disk",
    "AppendDeduplicated": "one batch, and its ids in the same frame",
}
"""The other methods whose request has several elements, and why they are not tested here."""


@pytest.mark.parametrize("request_of_many", REQUESTS, ids=lambda it: it.__name__)
def test_a_refused_request_stored_none_of_its_changes(request_of_many: Request) -> None:
    """If the disk fills at any of the changes, the state is unchanged, in memory and after a restart (G11)."""
    _refuse(request_of_many)


def test_changes_accepted_one_by_one_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted store that reserves space change by change keeps parts of a refused request."""

    async def accept(engine: Engine, changes: Sequence[StateChange], check: object = None) -> "asyncio.Future[None]":
        waiter = asyncio.get_running_loop().create_future()
        waiter.set_result(None)
        for change in changes:
            encoded, waiter = [change.encoded()], asyncio.get_running_loop().create_future()
            if not engine.appender.fits(engine.appender.changes_length(encoded)):
                await engine.appender.reserve_space(engine.appender.changes_length(encoded), is_state=True)
            engine.appender.append_changes([change], encoded, waiter)
        return waiter

    monkeypatch.setattr(Engine, "_accept", accept)
    with pytest.raises(AssertionError, match="is stored in part"):
        _refuse(delete_topics)


def test_every_method_that_names_several_things_is_asked() -> None:
    """A new method of EnodeService with a repeated field in its request has to be put into one of the tables."""
    methods = enode_pb2.DESCRIPTOR.services_by_name["EnodeService"].methods
    several = {
        method.name
        for method in methods
        if not method.client_streaming and any(field.is_repeated for field in method.input_type.fields)
    }
    assert several == {*REQUESTS.values(), *OTHERS} - {""}


def _refuse(request_of_many: Request) -> None:
    """Have a request refused because the disk is full, check that nothing of it is stored, and then execute it."""
    memory, clock = MemoryDisk(), VirtualClock()

    async def scenario() -> None:
        one = OneStore(clock, FaultyDisk(memory), replace(SETTINGS, checkpoint_records=1 << 30))
        await one.open()
        async with Background("test") as background:
            it = PopStore(one, background)
            await it.open()
            held = await _filled(it)
            appender = one.store.engine.appender
            memory.capacity_bytes = 0
            left_bytes = ROOM_FOR_SOME_BYTES.get(REQUESTS.get(request_of_many, ""), 500)
            while one.store.engine.spares._available or appender.active.limit - appender.appended_position > left_bytes:
                await one.store.offsets.commit(TOPIC, "filler", {0: 1})
            before = list(one.store.engine.state.checkpoint())
            with pytest.raises(Overloaded):
                await request_of_many(it, held)
            await appender.flush()
            assert list(one.store.engine.state.checkpoint()) == before, "a refused request is stored in part"
            memory.capacity_bytes = 1 << 30
            await it.leasing.lines.close()
            await one.restart()
            assert list(one.store.engine.state.checkpoint()) == before, "a refused request is found after a restart"
            await it.open()
            await request_of_many(it, held)
            await one.store.engine.appender.flush()
            assert list(one.store.engine.state.checkpoint()) != before
            await it.leasing.lines.close()
            await one.store.close()

    clock.run(scenario, limit_s=86_400)


async def _filled(it: PopStore) -> Held:
    """State that every request can change."""
    await it.store.put_topics([TopicCopy(1000 + number, f"going {number}", 1, 1) for number in range(MANY)])
    holders = [LockRequest((TOPIC, f"holder {number}", 0), LONG, "session") for number in range(MANY)]
    assert all(isinstance(answer, LockGranted) for answer in await it.store.locks.take(holders))
    for first in range(MANY):  # so that each queue's lock has another generation
        keys = [(TOPIC, f"group {LONG}", number) for number in range(first, MANY)]
        await it.store.locks.fence(keys, lambda _: [])
    await it.send(*(f"m{number}" for number in range(MANY)))
    await it.store.put_topics([TopicCopy(RETRIES, "%RETRY%puller", 1, 1)])
    letters = [Message(b"letter %d" % number) for number in range(MANY)]
    await it.store.append(DEAD_LETTERS, 0, encode(letters, now_ms=1))
    held = [
        (one.number, one.offsets[0]) for _ in range(MANY) for one in (await it.pop(1, invisible_ms=600_000)).batches
    ]
    await it.store.engine.appender.flush()
    return held
