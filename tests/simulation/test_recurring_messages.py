"""Recurring messages on virtual time: leaders that fail, programs with schedules, and a broker that restarts."""

import contextlib
import re
from collections import Counter
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ortoo.client import App, Client, Invalid, NotFound, PoppedMessage, Unavailable, connect
from ortoo.testing.pytest_broker import Broker
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import THREE, harmed, leader, topic

HOUR_MS = 3_600_000
PAGE = Path(__file__).parents[2] / "docs/recurring-messages.md"


async def until_stored(stage: ScriptedCluster, client: Client, schedules: int) -> None:
    """Create schedules with periods of 1 s, 2 s and so on; retries are harmless."""
    for number in range(1, schedules + 1):
        while True:
            with contextlib.suppress(Unavailable):
                every = timedelta(seconds=number)
                await client.admin.schedules.create("t", f"s{number}", b"x", every=every, catch_up="all")
                break
            await stage.clock.sleep(0.1)


@pytest.mark.parametrize("harm", ["kill", "power cut", "freeze", "isolate", "stop"])
def test_each_occurrence_is_sent_once_by_all_leaders_together(harm: str) -> None:
    """Leaders fail every half minute; a returning leader sends nothing that its successor has sent."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            await until_stored(stage, client, 5)
            for _ in range(6):
                await stage.clock.sleep(20.3)
                undo = await harmed(stage, await leader(stage), harm)
                await stage.clock.sleep(9.2)
                undo()
            await stage.clock.sleep(20)
            await leader(stage)
            found: dict[str, list[int]] = {}
            async for message in client.admin.tail("t", from_beginning=True, follow=False):
                due_ms = int(message.message.properties["SCHEDULED_AT_MS"])
                assert message.stored_at_ms >= due_ms
                found.setdefault(message.message.properties["SCHEDULE_NAME"], []).append(due_ms)
            assert sorted(found) == [f"s{number}" for number in range(1, 6)]
            for name, sent in found.items():
                period_ms = int(name[1:]) * 1_000
                assert {later - earlier for earlier, later in pairwise(sent)} == {period_ms}
                assert len(sent) > 180_000 / period_ms

    play(script, shape=THREE)


async def test_a_program_is_called_once_for_each_occurrence(broker: Broker) -> None:
    """Two processes of a program share the occurrences; an enode that is away delays them."""
    calls: list[int] = []

    def program() -> App:
        app = App("reports")

        @app.every(timedelta(minutes=10), catch_up="all")
        async def refresh(message: PoppedMessage) -> None:
            calls.append(int(message.properties["SCHEDULED_AT_MS"]))

        @app.cron("0 6 * * *", timezone="Europe/Berlin", name="daily", retries=(timedelta(seconds=30),))
        async def report(body: str, message: PoppedMessage) -> None:
            assert body == "daily"
            if message.attempt == 1:
                raise RuntimeError("the database is away")
            calls.append(-1)

        return app

    async with connect() as mq, program().running(mq), program().running(mq):
        await broker.clock.advance(hours=3)
        await broker.restart("enode")
        await broker.clock.advance(hours=3)
        broker.kill("enode")
        await broker.clock.advance(hours=1)
        await broker.start("enode")
        await broker.clock.advance(hours=17)
        (listed,) = (await mq.admin.schedules.list("reports-schedules", limit=1)).schedules
        assert (listed.name, listed.cron, listed.timezone, listed.sent_count) == (
            "daily",
            "0 6 * * *",
            "Europe/Berlin",
            1,
        )
    times = [call for call in calls if call > 0]
    assert Counter(times) == Counter(range(times[0], times[0] + 144 * 600_000, 600_000))
    assert calls.count(-1) == 1


async def test_the_program_of_the_page_is_called(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/recurring-messages.md: two functions, one by cron fields and one by a period."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    defined: dict[str, Any] = {"__name__": "shop"}
    exec(program, defined)
    async with connect() as mq, defined["app"].running(mq):
        names = [one.name for one in (await mq.admin.schedules.list("shop-schedules")).schedules]
        assert names == ["refresh", "report"]
        await broker.clock.advance(minutes=10)
        await mq.admin.schedules.suspend("shop-schedules", "refresh")
        await broker.clock.advance(days=7)
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("report") == 5
    assert len({line for line in lines if line.startswith("refresh of ")}) == len(lines) - 5 == 20


async def test_schedules_are_changed_by_name(broker: Broker) -> None:
    """An operator's calls, with errors that name the field."""
    await broker.create_topic("jobs")
    async with connect() as mq:
        schedules = mq.admin.schedules
        created = await schedules.create("jobs", "nightly", b"run", cron="30 2 * * *", timezone="Europe/Berlin")
        assert await schedules.create("jobs", "nightly", b"run", cron="30 2 * * *", timezone="Europe/Berlin") == created
        described = await schedules.describe("jobs", "nightly")
        assert described.message is not None
        assert described.message.body == b"run"
        assert 0 < described.next_ms - broker.clock.now_ms() <= 24 * HOUR_MS
        await schedules.suspend("jobs", "nightly")
        await broker.clock.advance(hours=30)
        assert await broker.messages("jobs") == []
        assert (await schedules.list()).schedules[0].suspended
        await schedules.resume("jobs", "nightly")
        await broker.clock.advance(hours=25)
        assert len(await broker.messages("jobs")) == 1
        await schedules.delete("jobs", "nightly")
        await broker.clock.advance(hours=25)
        assert len(await broker.messages("jobs")) == 1
        for call, field in (
            (schedules.describe("jobs", "nightly"), "name"),
            (schedules.create("jobs", "a", b"x", cron="0 25 * * *"), "cron"),
            (schedules.create("jobs", "a", b"x", cron="0 2 * * *", timezone="Nowhere"), "timezone"),
            (schedules.create("jobs", "a", b"x", every=timedelta(milliseconds=10)), "period_ms"),
            (schedules.create("jobs", "a", b"x", every=timedelta(seconds=1), catch_up="some"), "catch_up"),
            (schedules.create("jobs", "a b", b"x", every=timedelta(seconds=1)), "name"),
        ):
            with pytest.raises((Invalid, NotFound)) as refused:
                await call
            assert refused.value.field == field
        await mq.admin.delete_topic("jobs")


def test_a_program_starts_while_an_enode_without_its_schedules_is_away() -> None:
    """An existing schedule is found on its enode. A new name may be that of a schedule on the enode that is away."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            schedules, every = client.admin.schedules, timedelta(hours=1)
            while sum(one.alive for one in (await client.admin.describe_cluster()).enodes) < 2:
                await stage.clock.sleep(0.1)
            await client.admin.ensure_topic("t", queue_count=1)
            created = await schedules.create("t", "s", b"x", every=every)
            next(one for one in stage.cluster.enodes if one.name != created.queue.enode).kill()
            again = await schedules.create("t", "s", b"y", every=every, replace=True)
            assert again.queue == created.queue
            await schedules.suspend("t", "s")
            assert (await schedules.describe("t", "s")).suspended
            with pytest.raises(Unavailable, match="may have the schedule"):
                await schedules.create("t", "another", b"x", every=every)
            await schedules.delete("t", "s")

    play(script, shape=ClusterShape(enodes=2, snodes=1))
