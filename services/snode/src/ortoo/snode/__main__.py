"""The process `ortoo-snode`."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from ortoo.common.cluster.dynamic_settings import DynamicSettings
from ortoo.common.process import entry_point
from ortoo.common.process.service import Running
from ortoo.common.process.settings import LoadedSettings
from ortoo.snode.settings import IMPORTANT, SnodeSettings, load
from ortoo.snode.workers.parent import open_workers
from ortoo.snode.workers.worker import Worker

Open = Callable[
    [LoadedSettings[SnodeSettings], Callable[[], LoadedSettings[SnodeSettings]]], AbstractAsyncContextManager[Running]
]


def _choose_open(worker: Worker | None, folder: Path) -> Open:
    """Return the function that opens this process: a snode, a parent of workers, or one worker."""

    @contextlib.asynccontextmanager
    async def open_process(
        loaded: LoadedSettings[SnodeSettings], reload: Callable[[], LoadedSettings[SnodeSettings]]
    ) -> AsyncIterator[Running]:
        if worker is None and loaded.settings.workers > 1:
            command = (sys.executable, "-m", "ortoo.snode", *sys.argv[1:])
            async with open_workers(loaded.settings, command, folder) as running:
                yield running
            return
        from ortoo.snode.app import open_snode  # a parent serves nothing, and needs none of it

        live = DynamicSettings(loaded, reload)
        async with open_snode(loaded.settings, live=live, worker=worker) as running:
            yield running

    return open_process


ROLE = entry_point.RoleDefinition(
    name="snode",
    about="The proxy of Ortoo, where clients connect.",
    load=load,
    open=_choose_open(None, Path()),
    important=IMPORTANT,
)


def main() -> int:
    """Run the command line; returns the exit code."""
    worker = Worker.from_environ(os.environ)
    role = dataclasses.replace(
        ROLE,
        load=load if worker is None else worker.wrap_load(load),
        open=_choose_open(worker, Path.cwd()),  # of workers' own `-c`: ORTOO_HOME is entered later
    )
    return entry_point.run_command(lambda: entry_point.main(role, sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
