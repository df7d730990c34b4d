"""The cost of a watch of the routes: counted for one more watcher, beside more topics, and for a burst of changes."""

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from ortoo.common.directory.topic import Permission, Placement
from ortoo.common.process.clock import SystemClock
from ortoo.namesrv.decisions.process_leases import Enode
from ortoo.namesrv.decisions.routes.route_change import RouteChange
from ortoo.namesrv.decisions.routes.route_changes import Routes, StoredDirectory
from ortoo.namesrv.decisions.topics import Topic
from ortoo.namesrv.directory import watches
from ortoo.namesrv.directory.watches import SNAPSHOTS_AT_ONCE, RouteWatchers
from ortoo.namesrv.rpc.service import NameService
from ortoo.v1.namesrv_pb2 import WatchRoutesRequest
from tests.work_done import WorkDone, count_work

FEW, MANY = 1_000, 4_000
DIRECTORY = "00000000-0000-4000-8000-000000000001"
VERSION = 9
AFTER_RESTART = WatchRoutesRequest(directory_id=DIRECTORY, since=VERSION)


def routes_of(count: int) -> Routes:
    """A directory with this number of topics, as a restarted name server loads it."""
    topics = [
        Topic(f"t{number:06}", number, VERSION, Permission.READ_WRITE, (Placement("a", 4, 4),), 1)
        for number in range(1, count + 1)
    ]
    return Routes(StoredDirectory(VERSION, tuple(topics), directory_id=DIRECTORY))


def service_of(routes: Routes) -> NameService:
    """The handlers of a name server that has these routes."""
    absent: Any = None
    directory: Any = SimpleNamespace(watches=RouteWatchers(routes, watchers_max=1_000))
    return NameService(directory, absent, absent, absent, absent)


def watch(service: NameService, request: WatchRoutesRequest) -> AsyncGenerator[bytes, None]:
    """One call of a watcher."""
    context: Any = None
    call: Any = service.WatchRoutes(request, context)
    return call  # type: ignore[no-any-return]


async def work_of_one_more(topics: int, request: WatchRoutesRequest) -> WorkDone:
    """The work for the first message to a watcher, after another watcher got the same message."""
    service = service_of(routes_of(topics))
    first, second = watch(service, request), watch(service, request)
    await anext(first)
    with count_work() as work:
        await anext(second)
    await first.aclose()
    await second.aclose()
    return work


@pytest.mark.parametrize("request_of", [WatchRoutesRequest(), AFTER_RESTART], ids=["snapshot", "resumed"])
async def test_a_further_watcher_costs_the_same_beside_more_topics(request_of: WatchRoutesRequest) -> None:
    """All watchers share one encoding."""
    few, many = await work_of_one_more(FEW, request_of), await work_of_one_more(MANY, request_of)
    assert many.is_at_most(few), (few, many)


async def test_a_watcher_of_a_restarted_name_server_gets_no_unchanged_topic() -> None:
    """The size of its first message does not depend on the number of topics."""
    sizes = []
    for count in (FEW, MANY):
        call = watch(service_of(routes_of(count)), AFTER_RESTART)
        sizes.append(len(await anext(call)))
        await call.aclose()
    assert sizes[1] == sizes[0]
    assert sizes[0] < 100


@pytest.mark.parametrize("changes", [25, 100])
async def test_changes_in_a_burst_are_one_message(changes: int) -> None:
    """Each watcher gets the first change at once and the others together."""
    service = service_of(routes_of(1))
    calls = [watch(service, WatchRoutesRequest()) for _ in range(3)]
    for call in calls:
        await anext(call)
    published, read = service.directory.watches, []
    for number in range(changes):
        published.publish(RouteChange(0, enodes=(Enode(f"e{number}", "h:1", "s"),)))

    async def read_all(call: AsyncGenerator[bytes, None]) -> None:
        async for message in call:
            read.append(message)
            if f"e{changes - 1}".encode() in message:
                return

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(read_all(call))
    assert len(read) <= 2 * len(calls)
    for call in calls:
        await call.aclose()


async def test_few_snapshots_are_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that take nothing more delay the others only for the time of a turn."""
    turn_s, clock = 0.2, SystemClock()
    monkeypatch.setattr(watches, "SNAPSHOT_TURN_S", turn_s)
    service = service_of(routes_of(1))
    calls = [watch(service, WatchRoutesRequest()) for _ in range(3 * SNAPSHOTS_AT_ONCE)]
    served_s: list[float] = []

    async def begin(call: AsyncGenerator[bytes, None]) -> None:
        await anext(call)
        served_s.append(clock.monotonic_s() - begun_s)

    begun_s = clock.monotonic_s()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(begin(call))
    assert len(served_s) == len(calls)
    for turn in (1, 2):
        assert served_s[turn * SNAPSHOTS_AT_ONCE] > 0.95 * turn * turn_s
    for call in calls:
        await call.aclose()
