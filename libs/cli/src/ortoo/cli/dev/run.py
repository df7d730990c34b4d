"""Runs the cluster of `ortoo dev` until it is told to stop."""

import asyncio
import os
import signal
from pathlib import Path

from ortoo.cli.dev.cluster import open_dev_cluster, tls_address_beside
from ortoo.common.process.logs import configure


def run(data_dir: Path, listen_address: str, members: int = 1) -> None:
    """Run until SIGINT or SIGTERM; a second signal ends the process at once."""
    configure(level="warning")
    asyncio.run(_run(data_dir, listen_address, members))


async def _run(data_dir: Path, listen_address: str, members: int) -> None:
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    tls_address = tls_address_beside(listen_address)
    async with open_dev_cluster(data_dir, listen_address, tls_address, members) as snode:
        other = "" if snode.address.endswith(":8081") else f"export ORTOO_ADDRESS={snode.address}; "
        print(
            f"ready on {snode.address}, by TLS on {snode.tls_address}, data in {data_dir}. Try in another terminal: "
            f'{other}ortoo topic create t; ortoo send t "hello"; ortoo tail t   (Ctrl-C stops)',
            flush=True,
        )
        await stop.wait()
