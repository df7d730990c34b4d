"""A worker process, as managed by its parent."""

import asyncio
import socket
import sys
from pathlib import Path

from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.snode.workers.process import WorkerProcess
from ortoo.snode.workers.worker import Worker

TALKATIVE = "import sys\nprint('x' * 1_000_000)\nprint('ready snode-0.1 h:1', flush=True)\nsys.stdin.read()"


async def test_what_a_worker_prints_is_no_trouble_to_its_parent(tmp_path: Path) -> None:
    """An interceptor prints a line longer than the parent reads; the worker still becomes ready, and stops."""
    changed = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        told = Worker(1, "h:1", "", "h:2", listener.fileno())
        command = (sys.executable, "-c", TALKATIVE)
        one = WorkerProcess("w", told, listener, command, tmp_path, changed.set, SystemClock(), Randomness())
        async with asyncio.timeout(60), Background("test") as background:
            running = background.spawn("worker", one.run())
            await changed.wait()
            assert (one.is_ready, one.starts) == (True, 1)
            one.stop()
            await running
