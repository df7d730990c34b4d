"""A real broker on a real port, in real time, for programs in any language."""

import contextlib
import tempfile
from pathlib import Path

from ortoo.cli.dev.cluster import ANY_PORT, open_dev_cluster
from ortoo.client.blocking.loop_thread import LoopThread


class RealBroker:
    """What `ortoo dev` runs, in a thread of the test's process and with its data in a folder that goes with it."""

    def __init__(self) -> None:
        """Start it, and wait until it is ready."""
        self._parts = contextlib.ExitStack()
        folder = self._parts.enter_context(tempfile.TemporaryDirectory(prefix="ortoo-"))
        thread = LoopThread()
        self._parts.callback(thread.close)
        running = self._parts.enter_context(thread.inside(open_dev_cluster(Path(folder), ANY_PORT)))
        self.address = running.address
        """host:port."""

    def close(self) -> None:
        """Stop it and forget its data."""
        self._parts.close()
