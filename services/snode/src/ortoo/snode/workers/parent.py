"""The parent of several workers: it keeps their ports, starts them, passes signals on, and ends last."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from ortoo.common.errors import Conflict
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.service import EXIT_NOT_STARTED, Running
from ortoo.snode.settings import Settings, worker_name
from ortoo.snode.workers.endpoint import WorkersEndpoint
from ortoo.snode.workers.ports import kept_ports
from ortoo.snode.workers.process import WorkerProcess
from ortoo.snode.workers.worker import Worker


@contextlib.asynccontextmanager
async def open_workers(settings: Settings, command: Sequence[str], folder: Path) -> AsyncIterator[Running]:
    """Run the workers of a snode, each by `command` in `folder`; ready when all are. Leaving the block drains them.

    Errors: Conflict when a port is taken, or when no worker can start; why is what they said themselves.
    """
    clock, randomness, changed = SystemClock(), Randomness(), asyncio.Event()
    async with contextlib.AsyncExitStack() as stack, Background("workers") as background:
        ports = stack.enter_context(kept_ports(settings))

        def worker(number: int) -> WorkerProcess:
            # What only the parent asks for is reached from this machine alone.
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            told = Worker(
                number,
                ports.listen_address,
                ports.tls_listen_address,
                ports.own_addresses[number - 1],
                listener.fileno(),
            )
            name = worker_name(settings.name, number)
            return WorkerProcess(name, told, listener, command, folder, changed.set, clock, randomness)

        workers = [worker(number) for number in range(1, settings.workers + 1)]

        def reload() -> None:
            for one in workers:
                one.reload()

        await stack.enter_async_context(WorkersEndpoint(settings.metrics_address, settings.name, workers, clock))
        running = [background.spawn(one.name, one.run()) for one in workers]
        try:
            while not all(one.is_ready for one in workers):
                _refuse(workers)
                changed.clear()
                await changed.wait()
            yield Running(
                settings.name,
                ports.listen_address,
                reload=reload,
                tls_address=ports.tls_listen_address,
            )
        finally:
            for one in workers:
                one.stop()
            await asyncio.wait(running)


def _refuse(workers: Sequence[WorkerProcess]) -> None:
    """Errors: Conflict when no worker was ever ready and each was refused: none of them will be by waiting."""
    codes = [one.refused_code for one in workers if not one.was_ready]
    if len(codes) == len(workers) and all(codes):
        raise Conflict(
            f"none of {len(workers)} could start (exit code {codes[0]}); their own lines of the log say why",
            field="listen_address" if codes[0] == EXIT_NOT_STARTED else "workers",
        )
