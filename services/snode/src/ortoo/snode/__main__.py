"""The process `ortoo-snode`."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from ortoo.common.cluster.dynamic_settings import LiveSettings
from ortoo.common.process import entry_point
from ortoo.common.process.service import Running
from ortoo.common.process.settings import Loaded
from ortoo.snode.settings import IMPORTANT, Settings, load
from ortoo.snode.workers.parent import open_workers
from ortoo.snode.workers.worker import Worker

Open = Callable[[Loaded[Settings], Callable[[], Loaded[Settings]]], AbstractAsyncContextManager[Running]]


def _opening(worker: Worker | None, folder: Path) -> Open:
    """Opens this process: as a whole snode, as the parent of its workers, or as one of these."""

    @contextlib.asynccontextmanager
    async def opened(loaded: Loaded[Settings], load_again: Callable[[], Loaded[Settings]]) -> AsyncIterator[Running]:
        if worker is None and loaded.settings.workers > 1:
            command = (sys.executable, "-m", "ortoo.snode", *sys.argv[1:])
            async with open_workers(loaded.settings, command, folder) as running:
                yield running
            return
        from ortoo.snode.app import open_snode  # a parent serves nothing, and needs none of it

        live = LiveSettings(loaded, load_again)
        async with open_snode(loaded.settings, live=live, worker=worker) as running:
            yield running

    return opened


ROLE = entry_point.Role(
    name="snode",
    about="The proxy of Ortoo, where clients connect.",
    load=load,
    open=_opening(None, Path()),
    important=IMPORTANT,
)


def main() -> int:
    """Run the command line; returns the exit code."""
    worker = Worker.of(os.environ)
    role = dataclasses.replace(
        ROLE,
        load=load if worker is None else worker.loading(load),
        open=_opening(worker, Path.cwd()),  # of workers' own `-c`: ORTOO_HOME is entered later
    )
    return entry_point.command(lambda: entry_point.main(role, sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
