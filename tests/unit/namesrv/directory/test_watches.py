"""Watchers wait for changes, and their cost is limited."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ortoo.common.directory.group import Group
from ortoo.common.errors import Overloaded
from ortoo.common.process.clock import SystemClock
from ortoo.namesrv.decisions.process_leases import Enode
from ortoo.namesrv.decisions.routes.route_change import RouteChange
from ortoo.namesrv.decisions.routes.route_changes import Routes, StoredDirectory, WatchStart
from ortoo.namesrv.directory.watches import RouteWatchers


def news(name: str) -> RouteChange:
    """A change."""
    return RouteChange(0, enodes=(Enode(name, "h:1", "s"),))


async def test_slow_watcher_gets_everything_again() -> None:
    """A watcher that fell behind the kept changes gets a snapshot instead."""
    watches = RouteWatchers(Routes(StoredDirectory(0), changes_max=2), watchers_max=10)
    slow = watches.watch()
    assert (await anext(slow)).snapshot
    for name in "abc":
        watches.publish(news(name))
    again = await anext(slow)
    assert again.snapshot
    assert [enode.name for enode in again.enodes] == ["a", "b", "c"]
    watches.publish(news("d"))
    assert (await anext(slow)).enodes == (Enode("d", "h:1", "s"),)
    await slow.aclose()


async def test_an_enode_gets_no_registrations() -> None:
    """They would be a message to each enode for each restart of any process, and an enode needs none of them."""
    routes = Routes(StoredDirectory(1, directory_id="d"))
    watches = RouteWatchers(routes, watchers_max=10)
    watches.publish(news("a"))
    enode, snode = watches.watch(WatchStart(lite_scope="e")), watches.watch(WatchStart(lite_scope=""))
    assert (await anext(enode)).enodes == ()
    assert [one.name for one in (await anext(snode)).enodes] == ["a"]
    watches.publish(news("b"))
    assert [one.name for one in (await anext(snode)).enodes] == ["b"]
    group = Group("g", 2)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(_next(enode))
        await SystemClock().sleep(0)
        watches.publish(news("c"))
        watches.publish(RouteChange(2, groups=(group,)))
    assert waiting.result() == RouteChange(2, groups=(group,), directory_id="d")
    resumed = watches.watch(WatchStart("d", 2, lite_scope="e"))
    assert (change := await anext(resumed)).resumed
    assert change.enodes == ()
    for watcher in (enode, snode, resumed):
        await watcher.aclose()


async def test_number_of_watchers_is_limited_and_given_back() -> None:
    """A watcher above the limit is refused until another one ends."""
    watches = RouteWatchers(Routes(StoredDirectory(0)), watchers_max=1)
    first = watches.watch()
    await anext(first)
    with pytest.raises(Overloaded, match="watchers_max"):
        await anext(watches.watch())
    await first.aclose()
    assert (await anext(watches.watch())).snapshot


async def test_end_lets_waiting_watchers_finish() -> None:
    """A shutdown does not wait for idle watchers."""
    watches = RouteWatchers(Routes(StoredDirectory(0)), watchers_max=1)
    watcher = watches.watch()
    await anext(watcher)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        rest = group.create_task(_all(watcher))
        watches.close()
    assert rest.result() == 0


async def _next(watcher: AsyncIterator[RouteChange]) -> RouteChange:
    return await anext(watcher)


async def _all(watcher: object) -> int:
    return len([change async for change in watcher])  # type: ignore[attr-defined]
