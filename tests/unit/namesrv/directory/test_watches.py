"""Watchers wait for changes, and their cost is limited."""

import asyncio

import pytest

from ortoo.common.errors import Overloaded
from ortoo.namesrv.decisions.process_leases import Enode
from ortoo.namesrv.decisions.routes.route_change import RouteChange
from ortoo.namesrv.decisions.routes.route_changes import Routes, StoredDirectory
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
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        rest = group.create_task(_all(watcher))
        watches.close()
    assert rest.result() == 0


async def _all(watcher: object) -> int:
    return len([change async for change in watcher])  # type: ignore[attr-defined]
