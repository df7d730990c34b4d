"""Each occurrence of a schedule is sent exactly once and never early, with any failure and any clock (G19)."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile

import pytest

from ortoo.common.errors import AlreadyExists, Conflict, Invalid, NotFound, OrtooError, Overloaded
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import Message, encode, open_batch
from ortoo.enode.changes.schedules import CatchUp, SchedulePut
from ortoo.enode.log.settings import FlushMode
from ortoo.enode.schedules import occurrences as rules
from ortoo.enode.schedules import runner
from ortoo.enode.schedules.occurrences import due_occurrences, rule_of, zone_of
from ortoo.verification.time.virtual_clock import VirtualClock
from tests.contract.deferred_store import DeferredStore, power_cuts
from tests.contract.one_store import QUEUES, SETTINGS, TOPIC

HOUR_MS = 3_600_000
BERLIN_CHANGES_MS = int(datetime(2027, 10, 31, 1, tzinfo=UTC).timestamp()) * 1000
"""When the clocks of Berlin go from 03:00 back to 02:00."""
LARGE = replace(
    SETTINGS,
    segment_bytes=1 << 20,
    recent_bytes=1 << 20,
    disk_check_interval_ms=600_000,
    retention_interval_ms=600_000,
)


def schedule(
    name: str = "s", *, every_s: float = 0, cron: str = "", timezone: str = "", catch_up: CatchUp = CatchUp.LAST
) -> SchedulePut:
    """A schedule to create, whose body is its name."""
    records = encode([Message(name.encode(), "tag", properties={"a": "b"}, born_at_ms=0)], now_ms=0).records
    queue_id = sum(name.encode()) % QUEUES
    return SchedulePut(TOPIC, queue_id, 0, 0, 0, int(every_s * 1000), catch_up, False, records, name, cron, timezone)


Sent = list[tuple[str, int, int]]
"""(name, occurrence, the time at which it was stored)."""


async def sent(one: DeferredStore) -> Sent:
    """The messages of schedules in all queues."""
    found = []
    for queue_id in range(QUEUES):
        offset = one.store.describe_queues(TOPIC)[queue_id].begin_offset
        while (fetched := await one.store.fetch(TOPIC, queue_id, offset)).batches:
            for batch in fetched.batches:
                for message in open_batch(batch.batch):
                    name, due = message.properties["SCHEDULE_NAME"], int(message.properties["SCHEDULED_AT_MS"])
                    assert message.message_id == f"{name}@{due}"
                    assert message.body == name.encode()
                    assert (message.tag, message.properties["a"]) == ("tag", "b")
                    found.append((name, due, batch.stored_at_ms))
            offset = fetched.next_offset
    return found


def occurrences(stored: SchedulePut, begin_ms: int, end_ms: int) -> list[int]:
    """All occurrences in (begin, end]."""
    return list(takewhile(lambda due_ms: due_ms <= end_ms, rule_of(stored).after(begin_ms)))


def drawn_rule(number: int, chance: Randomness) -> dict[str, object]:
    """One of many rules; most occur a few times a day, some each half hour of the night."""
    minute, hour = chance.below(60), chance.below(24)
    zone = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "")[chance.below(4)]
    match number % 10:
        case 0 | 1 | 2:
            return {"every_s": 3_600 * (4 + chance.below(12))}
        case 3 | 4 | 5:
            return {"cron": f"{minute} {hour} * * *", "timezone": zone}
        case 6:
            return {"cron": f"{minute} 1-3 * * *", "timezone": "Europe/Berlin"}
        case 7:
            return {"cron": f"*/{25 + chance.below(20)} 1-3 * * *", "timezone": zone}
        case 8:
            return {"cron": f"{minute} */{3 + chance.below(6)} * * *", "timezone": zone}
    return {"every_s": 60 * (100 + chance.below(200))}


async def test_a_thousand_schedules_over_two_days_send_each_occurrence_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a change to winter time, power cuts, restarts, and steps of the clock by an hour in both directions."""
    monkeypatch.setattr(runner, "POLL_S", 600.0)
    begin_ms = BERLIN_CHANGES_MS - 24 * HOUR_MS
    chance = Randomness(7)
    one = DeferredStore(clock=VirtualClock(begin_ms), settings=LARGE)
    await one.open()
    created = [
        await one.schedules.create(
            schedule(f"s{number}", catch_up=CatchUp.ALL, **drawn_rule(number, chance)),  # type: ignore[arg-type]
            replaces=False,
        )
        for number in range(1_000)
    ]
    latest_ms = begin_ms
    for step in range(24):
        await one.clock.pass_time(6_900 + chance.below(600))
        latest_ms = max(latest_ms, one.clock.now_ms())
        match step % 4:
            case 0:
                await one.crash(step)
            case 1:
                one.clock.set_wall(one.clock.now_ms() + (HOUR_MS if step % 8 == 1 else -HOUR_MS))
            case 2:
                await one.halt()
                await one.restart()
        latest_ms = max(latest_ms, one.clock.now_ms())
    await one.clock.pass_time(7_200)
    end_ms = max(latest_ms, one.clock.now_ms())
    assert end_ms - begin_ms > 47 * HOUR_MS
    found = await sent(one)
    assert Counter((name, due) for name, due, _ in found) == Counter(
        (known.name, due) for known in created for due in occurrences(known, known.settled_ms, end_ms)
    )
    assert all(stored_at_ms >= due for _, due, stored_at_ms in found)
    assert len(found) > 5_000
    await one.halt()
    await one.store.close()


async def test_a_power_cut_at_any_moment_loses_and_repeats_nothing() -> None:
    """Cuts fall before and after each operation of the disk, also between the append of a message and its sync."""

    async def workload(one: DeferredStore, said: object) -> None:
        await one.schedules.create(schedule(every_s=1, catch_up=CatchUp.ALL), replaces=False)
        await one.clock.pass_time(20)

    cuts_between = 0
    async for _, _, again in power_cuts(workload, points=120):
        for known in again.store.schedules.all():
            found = [due for _, due, _ in await sent(again)]
            assert found == occurrences(known, known.started_at_ms, again.clock.now_ms())
            assert known.sent_count == len(found)
            cuts_between += 1
    assert cuts_between > 100


async def test_a_checkpoint_keeps_schedules() -> None:
    """The frames of the schedule are deleted long before; the checkpoint has it."""
    one = DeferredStore(settings=replace(SETTINGS, retention_bytes=3 * SETTINGS.segment_bytes))
    await one.open()
    await one.schedules.create(schedule(every_s=5), replaces=False)
    for _ in range(400):
        await one.clock.pass_time(5)
        await one.append(b"x" * 200)
    assert one.store.describe().log_begin_position > 2 * SETTINGS.segment_bytes
    await one.halt()
    await one.restart()
    (known,) = one.store.schedules.all()
    assert known.sent_count >= 399
    await one.clock.pass_time(11)
    assert one.store.schedules.all()[0].sent_count - known.sent_count in (2, 3)
    await one.halt()
    await one.store.close()


@pytest.mark.parametrize(
    ("catch_up", "late"), [(CatchUp.SKIP, 0), (CatchUp.LAST, 1), (CatchUp.ALL, 59)], ids=lambda it: str(it)
)
async def test_late_occurrences_follow_the_policy(catch_up: CatchUp, late: int) -> None:
    """After an hour without an enode."""
    one = DeferredStore()
    await one.open()
    known = await one.schedules.create(schedule(every_s=60, catch_up=catch_up), replaces=False)
    await one.halt()
    await one.clock.pass_time(3_605)
    await one.restart()
    await one.clock.pass_time(1)
    found = [due for _, due, _ in await sent(one)]
    assert found == occurrences(known, known.settled_ms, one.clock.now_ms())[-1 - late :]
    await one.halt()
    await one.store.close()


async def test_a_suspended_schedule_sends_nothing_and_a_resumed_one_begins_anew() -> None:
    """A suspension and a deletion are final when the call returns, also while a message is due."""
    one = DeferredStore()
    await one.open()
    known = await one.schedules.create(schedule(every_s=10, catch_up=CatchUp.ALL), replaces=False)
    await one.clock.pass_time(25)
    await one.schedules.suspend(TOPIC, "s", suspended=True)
    await one.crash(1)
    await one.clock.pass_time(100)
    assert len(await sent(one)) == 2
    assert one.schedules.next_ms(one.store.schedules.all()[0]) == 0
    await one.schedules.suspend(TOPIC, "s", suspended=False)
    await one.clock.pass_time(10)
    assert [due - known.started_at_ms for _, due, _ in await sent(one)] == [10_000, 20_000, 130_000]
    await asyncio.gather(one.clock.pass_time(10), one.schedules.delete(TOPIC, "s"))
    count = len(await sent(one))
    await one.crash(2)
    await one.clock.pass_time(100)
    assert len(await sent(one)) == count
    assert not one.store.schedules.all()
    for change in (one.schedules.delete(TOPIC, "s"), one.schedules.suspend(TOPIC, "s", suspended=True)):
        with pytest.raises(NotFound):
            await change
    await one.halt()
    await one.store.close()


async def test_a_repeated_creation_has_no_effect_and_a_replacement_continues() -> None:
    """A definition is replaced only on request; an unchanged rule keeps its place."""
    one = DeferredStore()
    await one.open()
    known = await one.schedules.create(schedule(every_s=10), replaces=False)
    await one.clock.pass_time(15)
    assert (await one.schedules.create(schedule(every_s=10), replaces=False)).started_at_ms == known.started_at_ms
    other = replace(schedule(every_s=10), catch_up=CatchUp.SKIP)
    with pytest.raises(AlreadyExists):
        await one.schedules.create(other, replaces=False)
    continued = await one.schedules.create(other, replaces=True)
    assert (continued.started_at_ms, continued.sent_count) == (known.started_at_ms, 1)
    begun_anew = await one.schedules.create(schedule(every_s=20), replaces=True)
    assert begun_anew.started_at_ms == one.clock.now_ms()
    await one.clock.pass_time(21)
    assert [due - known.started_at_ms for _, due, _ in await sent(one)] == [10_000, 35_000]
    await one.halt()
    await one.store.close()


async def test_schedules_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals name what is too much; a replacement does not count twice."""
    monkeypatch.setattr(runner, "TOPIC_MAX", 2)
    one = DeferredStore(settings=LARGE)
    await one.open()
    for name in ("a", "b"):
        await one.schedules.create(schedule(name, every_s=1), replaces=False)
    await one.schedules.create(schedule("b", every_s=2), replaces=True)
    with pytest.raises(Conflict, match="schedules of the topic"):
        await one.schedules.create(schedule("c", every_s=1), replaces=False)
    with monkeypatch.context() as patch, pytest.raises(Conflict, match="bytes"):
        patch.setattr(runner, "TOTAL_BYTES_MAX", 100)
        await one.schedules.create(schedule("b", every_s=3), replaces=True)
    large = encode([Message(b"x" * (64 << 10))], now_ms=0).records
    with pytest.raises(Invalid) as refused:
        await one.schedules.create(replace(schedule("a", every_s=1), records=large), replaces=True)
    assert refused.value.field == "message"
    with pytest.raises(NotFound):
        await one.schedules.create(replace(schedule(every_s=1), topic_id=77), replaces=False)
    await one.halt()
    await one.store.close()


async def test_a_full_disk_delays_a_message_and_does_not_lose_it() -> None:
    """The enode retries; other schedules continue."""
    one = DeferredStore()
    await one.open()
    known = await one.schedules.create(schedule(every_s=10, catch_up=CatchUp.ALL), replaces=False)
    refusing: list[OrtooError] = [Overloaded("the disk is full")]
    append: Callable[..., object] = one.store.append

    async def refused(*arguments: object, **options: object) -> object:
        if refusing:
            raise refusing[0]
        return await append(*arguments, **options)  # type: ignore[misc]

    one.store.append = refused  # type: ignore[method-assign, assignment]
    await one.clock.pass_time(25)
    assert await sent(one) == []
    refusing.clear()
    await one.clock.pass_time(2)
    assert [due for _, due, _ in await sent(one)] == occurrences(known, known.settled_ms, one.clock.now_ms())
    await one.halt()
    await one.store.close()


async def test_an_enode_that_does_not_wait_for_its_disk_sends_each_occurrence_once() -> None:
    """With `flush_mode` async, producers are answered before a message is on disk; a schedule still advances first."""
    one = DeferredStore(settings=replace(SETTINGS, flush_mode=FlushMode.ASYNC))
    await one.open()
    known = await one.schedules.create(schedule(every_s=1, catch_up=CatchUp.ALL), replaces=False)
    await one.clock.pass_time(30)
    found = [due for _, due, _ in await sent(one)]
    assert found == occurrences(known, known.settled_ms, one.clock.now_ms())
    await one.halt()
    await one.store.close()


async def test_a_schedule_whose_zone_is_missing_here_stops_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log is opened on a machine with an older time zone database. The schedule waits, and can be deleted."""

    def without_berlin(name: str) -> object:
        if name == "Europe/Berlin":
            raise Invalid("'Europe/Berlin' is no time zone", field="timezone")
        return zone_of(name)

    one = DeferredStore()
    await one.open()
    await one.schedules.create(schedule("a", cron="* * * * *", timezone="Europe/Berlin"), replaces=False)
    await one.schedules.create(schedule("b", every_s=60), replaces=False)
    await one.halt()
    with monkeypatch.context() as older:
        older.setattr(rules, "zone_of", without_berlin)
        await one.restart()
        await one.clock.pass_time(125)
        assert [name for name, _, _ in await sent(one)] == ["b", "b"]
        assert [known.name for known in one.schedules.select() if one.schedules.next_ms(known)] == ["a", "b"]
    await one.clock.pass_time(60)
    assert Counter(name for name, _, _ in await sent(one))["a"] > 1
    await one.schedules.delete(TOPIC, "a")
    await one.halt()
    await one.store.close()


@pytest.mark.parametrize("catch_up", [CatchUp.SKIP, CatchUp.ALL])
async def test_a_clock_that_was_wrong_for_a_moment_skips_nothing_that_is_due_later(catch_up: CatchUp) -> None:
    """The clock is set three days forward, and back after seconds. Only what was sent meanwhile is not sent again."""
    one = DeferredStore()
    await one.open()
    await one.schedules.create(schedule(cron="0 * * * *", catch_up=catch_up), replaces=False)
    right_ms = one.clock.now_ms()
    one.clock.set_wall(right_ms + 72 * HOUR_MS + 600_000)
    await one.clock.pass_time(5)
    one.clock.set_wall(right_ms + 5_000)
    await one.clock.pass_time(5 * 3_600)
    found = [due for _, due, _ in await sent(one) if due <= one.clock.now_ms()]
    assert found == [(right_ms // HOUR_MS + number) * HOUR_MS for number in range(1, 6)]
    await one.halt()
    await one.store.close()


async def test_a_replacement_while_the_clock_is_set_back_sends_nothing_again() -> None:
    """The new rule has an occurrence in common with the previous one."""
    one = DeferredStore()
    await one.open()
    await one.schedules.create(schedule(cron="0 * * * *"), replaces=False)
    await one.clock.pass_time(3_600)
    one.clock.set_wall(one.clock.now_ms() - HOUR_MS)
    await one.schedules.create(schedule(cron="0,30 * * * *"), replaces=True)
    await one.clock.pass_time(2 * 3_600)
    found = [due for _, due, _ in await sent(one)]
    assert len(found) == len(set(found)) == 3
    await one.halt()
    await one.store.close()


async def test_other_tasks_run_between_late_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thousand late occurrences each, dozens of schedules at once would stop the event loop for 300 ms."""
    one = DeferredStore()
    await one.open()
    for number in range(40):
        await one.schedules.create(schedule(f"s{number}", every_s=60), replaces=False)
    since_turn = most = 0

    def counted(*arguments: object) -> list[int]:
        nonlocal since_turn, most
        since_turn += 1
        most = max(most, since_turn)
        return due_occurrences(*arguments)  # type: ignore[arg-type]

    async def turns() -> None:
        nonlocal since_turn
        while True:
            since_turn = 0
            await one.clock.sleep(0)

    monkeypatch.setattr(runner, "due_occurrences", counted)
    other = asyncio.ensure_future(turns())  # noqa: TID251  # cancelled below
    await one.clock.pass_time(61)
    other.cancel()
    assert len(await sent(one)) == 40
    assert 0 < most <= runner.IN_A_TURN
    await one.halt()
    await one.store.close()


async def test_many_failing_schedules_log_one_line_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk refuses the messages of all schedules again and again."""
    one = DeferredStore()
    await one.open()
    for number in range(50):
        await one.schedules.create(schedule(f"s{number}", every_s=60), replaces=False)
    lines: list[dict[str, object]] = []
    monkeypatch.setattr(runner._log, "emit", lambda event, **values: lines.append(values))

    async def refused(*arguments: object, **options: object) -> object:
        raise Overloaded("the disk is full")

    monkeypatch.setattr(one.store, "append", refused)
    await one.clock.pass_time(70)
    assert 0 < len(lines) <= 11
    assert sum(int(str(line["failures"])) for line in lines) > 400
    await one.halt()
    await one.store.close()
