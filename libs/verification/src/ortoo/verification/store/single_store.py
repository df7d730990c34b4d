"""Opens the store of an enode alone without its servers."""

import asyncio
from pathlib import Path
from typing import Any

from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.disk import Disk
from ortoo.enode.leadership.open_log import make_driver, open_log
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.recovery.hard_state import check_only_replica
from ortoo.enode.replication.membership import ReplicaMembership
from ortoo.enode.replication.protocol.identity import ReplicaId
from ortoo.enode.replication.state_comparison import StateComparison
from ortoo.enode.store.store import Store


class SingleStore(Store):
    """The store of a replica set of one. It belongs to the event loop that opened it."""

    closing: asyncio.Event
    serving: asyncio.Task[None]

    async def close(self) -> None:
        """Flush, write the marker of a clean stop, unlock the folder. Waiting fetches answer empty. Idempotent."""
        self.closing.set()
        await asyncio.wait([self.serving])
        await self.serving


async def open_single_store(
    folder: Path, *, settings: StoreSettings, disk: Disk, clock: Clock, randomness: Randomness
) -> SingleStore:
    """Open the store in `folder`, making it if there is none. Errors: as `open_replicated_log`."""
    opened: asyncio.Future[SingleStore] = asyncio.get_running_loop().create_future()
    closing = asyncio.Event()

    async def serve() -> None:
        disk.make_folder(folder)
        with disk.lock(folder):
            check_only_replica(disk, folder, "choose another folder")
            membership = ReplicaMembership(disk, folder, clock, randomness)
        await membership.join_or_found(_no_other_replica)
        comparison = StateComparison()
        async with open_log(membership, settings, comparison) as log, Background("store") as background:
            driver = make_driver(log, membership, lambda to, message: None, background, comparison)
            driver.reopens = False
            driver.start()
            while driver.leading_epoch is None:
                driver.changed.clear()
                await driver.changed.wait()
            await log.invalidate_lost_state()
            opened.set_result(SingleStore(log.engine))
            await closing.wait()

    serving = asyncio.get_running_loop().create_task(serve())
    waits: list[asyncio.Future[Any]] = [opened, serving]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    if not opened.done():
        await serving
    store = await opened
    store.closing, store.serving = closing, serving
    return store


async def _no_other_replica(address: str, set_id: str, created_at_ms: int, dry_run: bool) -> ReplicaId:
    raise AssertionError("an enode alone asks no other replica")
