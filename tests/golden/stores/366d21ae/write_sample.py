"""Write this sample with the code of git commit 366d21ae. README.md says how."""

import asyncio
import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from ortoo.common.groups.pop import PopRules, PopWish
from ortoo.common.process.background import Background
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import encode, open_batch
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.changes.groups import Mode
from ortoo.enode.deferred.checks import CheckSchedule
from ortoo.enode.deferred.delays import Delays
from ortoo.enode.deferred.identified import IdentifiedIntake
from ortoo.enode.deferred.intake import Intake
from ortoo.enode.deferred.transactions import Transactions
from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.log.answers import TopicCopy
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.pops.leasing import Leasing
from ortoo.enode.store.lock_table import LockRequest
from ortoo.enode.store.store import Store
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.decisions.groups import Group
from ortoo.namesrv.decisions.leases import Enode
from ortoo.namesrv.decisions.topics import NewTopic
from ortoo.namesrv.directory.directory import Directory

NOW_MS = 1_735_689_600_000
SETTINGS = StoreSettings(
    cluster="sample",
    enode="enode-a",
    segment_bytes=8192,
    headroom_bytes=0,
    retention_age_ms=0,
    checkpoint_slice_bytes=512,
    threads=False,
)
ORDERS, JOBS, LETTERS = 0x0123456789ABCDEF, 2, 3
WEEK_MS = 7 * 86_400_000


class StillClock:
    """A millisecond passes with every look; sleepers are never woken."""

    def __init__(self) -> None:
        self._now_ms = NOW_MS

    def now_ms(self) -> int:
        self._now_ms += 1
        return self._now_ms

    def monotonic_s(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.get_running_loop().create_future()


def batch(*bodies: str, deliver_at_ms: int | None = None) -> SealedBatch:
    """Messages with a key each."""
    messages = [
        Message(one.encode(), "tag", (f"key-{one}",), deliver_at_ms=deliver_at_ms, properties={"at": one})
        for one in bodies
    ]
    return encode(messages, now_ms=NOW_MS)


async def bodies(store: Store, topic_id: int) -> list[list[Any]]:
    """[queue id, offset, stored at, body] of each message that readers see."""
    found = []
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


async def write_store(folder: Path) -> dict[str, Any]:
    """A store with something of everything; returns what must be found in it."""
    clock = StillClock()

    async def opened() -> Store:
        return await Store.open(folder, settings=SETTINGS, disk=RealDisk(), clock=clock, randomness=Randomness(7))

    expected: dict[str, Any] = {}
    store = await opened()
    await store.put_topics([TopicCopy(ORDERS, "orders", 3, 1), TopicCopy(JOBS, "jobs", 2, 2)])
    await store.put_topics([TopicCopy(LETTERS, "%DLQ%workers", 1, 3), TopicCopy(9, "gone", 1, 4)])
    for number in range(60):
        await store.append(ORDERS, number % 2, batch(f"order-{number}", f"copy-{number}"))
        if number % 10 == 0:
            await store.offsets.commit(ORDERS, "billing", {0: number, 1: number // 2}, 4)
    await store.append(9, 0, batch("nobody reads this"))
    await store.delete_topics([9])
    await store.find_messages(ORDERS, key="key-order-0")
    # A producer whose last batches are remembered.
    for number in range(3):
        numbered = dataclasses.replace(batch(f"numbered-{number}"), producer_id=99, first_sequence=number)
        stored = await store.append(ORDERS, 2, numbered)
    expected["numbered"] = [stored.first_offset, stored.stored_at_ms]
    (granted,) = await store.locks.take([LockRequest((ORDERS, "billing", 1), "client-1", "session-1")])
    expected["lock"] = [1, granted.generation, "client-1", "session-1"]  # type: ignore[union-attr]
    async with Background("sample") as background:
        delays = Delays(store, background, clock=clock)
        transactions = Transactions(store, background, CheckSchedule(6_000, 30_000, 15), clock=clock)
        intake = Intake(store, delays, transactions)
        for number in range(3):
            await intake.append(ORDERS, number, batch(f"late-{number}", deliver_at_ms=NOW_MS + (number + 1) * WEEK_MS))
        half = await transactions.begin(ORDERS, 0, batch("half-0", "half-1"), producer_group="shop", key=77)
        await transactions.begin(JOBS, 1, batch("half-2"), producer_group="shop", check_after_ms=60_000)
        expected["half"] = half.number
        identified = IdentifiedIntake(store, intake, background, clock, window_ms=WEEK_MS)
        (place,) = await identified.append(JOBS, 0, batch("once"), ["payment-1"])
        expected["identified"] = [place.queue_id, place.offset, place.stored_at_ms]
        desk = Leasing(store, clock, background)
        await store.append(JOBS, 0, batch(*(f"job-{number}" for number in range(12))))
        rules = PopRules(attempts_max=3, dead_letter_topic_id=LETTERS)
        expected["leases"] = []
        for count, invisible_ms in ((4, 3_600_000), (3, 7_200_000)):
            wish = PopWish(JOBS, "workers", (0,), count, invisible_ms, 1 << 20, 0, "worker-1", "", rules)
            popped = await desk.pop(wish)
            leases = [{"number": one.number, "offsets": list(one.offsets)} for one in popped.batches]
            expected["leases"].append({"begun_at_ms": clock.now_ms(), "invisible_ms": invisible_ms, "leases": leases})
        await store.modes.set(ORDERS, "billing", Mode.OFFSETS)
        await store.engine.housekeeping.checkpoint()
        await store.append(ORDERS, 0, batch("behind the checkpoint"))
        await desk.lines.close()
        expected["delayed"] = [
            [one.timer_id, ORDERS, one.queue_id, one.deliver_at_ms] for one in store.timers.listed(ORDERS, 0, 100)
        ]
        expected["halves"] = [
            dataclasses.asdict(one)
            for one in store.halves.listed(topic_id=0, producer_group="", parked_only=False, limit=100)
        ]
    await store.close()
    store = await opened()
    expected["topics"] = [dataclasses.astuple(one) for one in store.topics()]
    expected["bodies"] = {str(topic_id): await bodies(store, topic_id) for topic_id in (ORDERS, JOBS)}
    expected["queues"] = {
        str(topic_id): [dataclasses.astuple(one) for one in store.describe_queues(topic_id)]
        for topic_id in (ORDERS, JOBS, LETTERS)
    }
    expected["offsets"] = {"billing": store.offsets.of(ORDERS, "billing")}
    expected["modes"] = {
        group: [[topic_id, int(mode)] for topic_id, mode in store.modes.of_group(group)]
        for group in ("billing", "workers")
    }
    expected["state"] = sorted(one.hex() for one in store.engine.state.checkpoint())
    expected["now_ms"] = clock.now_ms()
    await store.close()
    return expected


async def write_directory(folder: Path) -> dict[str, Any]:
    """A name server's database; returns what must be found in it."""
    clock = StillClock()
    catalog = await Catalog.open("", folder, "00000000-0000-4000-8000-000000000001")
    directory = Directory(
        catalog,
        await catalog.contents(),
        lease_s=30,
        deletion_grace_ms=0,
        watchers_max=10,
        clock=clock,
        randomness=Randomness(7),
    )
    for name, port in (("enode-a", 8091), ("enode-b", 8092)):
        enode = Enode(name, f"127.0.0.1:{port}", f"store-{name[-1]}")
        directory.register_enode(enode, directory.directory_id, [], 0)
    await directory.create_topic(NewTopic("orders", 4, 4))
    await directory.create_topic(NewTopic("jobs", 2, 1, enodes=("enode-b",)))
    await directory.put_group(Group("billing", 0, True, 1000, 5000, 0, attempts_max=5), create_only=True)
    workers = Group("workers", 0, True, 1000, 5000, 0, in_flight_max=7, park_expired=True)
    await directory.put_group(workers, create_only=True)
    for name, enabled in (("alice", True), ("mallory", False)):
        await catalog.change_users(
            lambda users, name=name, enabled=enabled: users.put(
                name, f"{name}'s secret", enabled=enabled, now_ms=NOW_MS
            )
        )
    expected = {
        "version": directory.version,
        "topics": [dataclasses.asdict(one) for one in directory.topics()],
        "groups": [dataclasses.asdict(one) for one in directory.groups()],
        "users": [dataclasses.asdict(one) for one in await catalog.change_users(lambda users: users.all())],
    }
    await catalog.close()
    return expected


async def main(target: Path) -> None:
    """Write both folders and what is in them."""
    for name in ("enode", "namesrv"):
        shutil.rmtree(target / name, ignore_errors=True)
        (target / name).mkdir(parents=True)
    expected = {"enode": await write_store(target / "enode"), "namesrv": await write_directory(target / "namesrv")}
    text = json.dumps(expected, indent=1, sort_keys=True, ensure_ascii=False)
    (target / "expected.json").write_text(text + "\n")


if __name__ == "__main__":
    import ortoo.enode

    sys.stderr.write(f"{ortoo.enode.__file__}\n")
    asyncio.run(main(Path(sys.argv[1])))
