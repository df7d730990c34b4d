"""The parent of several workers: it holds their ports, starts them, forwards signals, and ends last."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from ortoo.common.errors import Conflict
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.service import EXIT_NOT_STARTED, Running
from ortoo.snode.settings import SnodeSettings, worker_name
from ortoo.snode.workers.endpoint import WorkersEndpoint
from ortoo.snode.workers.ports import reserve_ports
from ortoo.snode.workers.process import WorkerProcess


@contextlib.asynccontextmanager
async def open_workers(settings: SnodeSettings, command: Sequence[str], folder: Path) -> AsyncIterator[Running]:
    """Run the workers of a snode; each one runs `command` in `folder`. The block begins when all are ready.

    The end of the block drains the workers. Errors: Conflict if a port is taken, or if no worker can start.
    """
    clock, randomness, changed = SystemClock(), Randomness(), asyncio.Event()
    async with contextlib.AsyncExitStack() as stack, Background("workers") as background:
        assigned = stack.enter_context(reserve_ports(settings))
        common = (command, folder, changed.set, clock, randomness)
        workers = [WorkerProcess(worker_name(settings.name, one.number), one, at, *common) for one, at in assigned]

        def reload() -> None:
            for one in workers:
                one.reload()

        await stack.enter_async_context(WorkersEndpoint(settings.metrics_address, settings.name, workers, clock))
        running = [background.spawn(one.name, one.run()) for one in workers]
        try:
            while not all(one.is_ready for one in workers):
                _check_startable(workers)
                changed.clear()
                await changed.wait()
            yield Running(
                settings.name,
                workers[0].worker.listen_address,
                reload=reload,
                tls_address=workers[0].worker.tls_listen_address,
            )
        finally:
            for one in workers:
                one.stop()
            await asyncio.wait(running)


def _check_startable(workers: Sequence[WorkerProcess]) -> None:
    """Errors: Conflict if every worker ended before it was ready, for a reason that a restart does not change."""
    codes = [one.refusal_exit_code for one in workers if not one.has_been_ready]
    if len(codes) == len(workers) and all(codes):
        raise Conflict(
            f"none of {len(workers)} workers could start (exit code {codes[0]}); their log lines have the reason",
            field="listen_address" if codes[0] == EXIT_NOT_STARTED else "workers",
        )
