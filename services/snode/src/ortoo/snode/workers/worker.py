"""The parameters that a worker process gets from its parent, and the settings that follow from them."""

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ortoo.common.process.memory_budget import default_budget_bytes, memory_bytes
from ortoo.common.process.settings import LoadedSettings
from ortoo.snode.settings import SnodeSettings, worker_name

ENVIRON_VARIABLE = "ORTOO_WORKER"
"""The environment variable that makes a process a worker. Only a parent sets it; it is not a setting."""


@dataclasses.dataclass(frozen=True, slots=True)
class Worker:
    """The parameters of a worker, which is one of several processes of a snode."""

    number: int
    """The number of the worker, from 1."""
    listen_address: str
    tls_listen_address: str
    """The addresses that all workers share. Without TLS, `tls_listen_address` is empty."""
    own_address: str
    """The address of this worker alone."""
    listener_number: int
    """The file descriptor of the listening socket for the parent's queries."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Worker | None":
        """Read the parameters from environment variables; None if this process is not a worker."""
        return cls(**json.loads(environ[ENVIRON_VARIABLE])) if ENVIRON_VARIABLE in environ else None

    def to_environ(self) -> dict[str, str]:
        """The environment variables that pass these parameters to the worker's process."""
        return {ENVIRON_VARIABLE: json.dumps(dataclasses.asdict(self))}

    def listener(self) -> socket.socket:
        """The listening socket for the parent's queries."""
        return socket.socket(fileno=self.listener_number)

    def wrap_load(
        self, load: Callable[..., LoadedSettings[SnodeSettings]]
    ) -> Callable[..., LoadedSettings[SnodeSettings]]:
        """Wrap the function that loads the snode's settings, so that it returns this worker's settings."""
        return lambda *args, **kwargs: self.worker_settings(load(*args, **kwargs), memory_bytes)

    def worker_settings(
        self, loaded: LoadedSettings[SnodeSettings], all_bytes: Callable[[], int]
    ) -> LoadedSettings[SnodeSettings]:
        """Convert the snode's settings to this worker's: its own name, its ports, and its part of the memory."""
        snode = loaded.settings
        budget_bytes = snode.memory_budget_bytes or default_budget_bytes(all_bytes())
        own: dict[str, Any] = {
            "name": worker_name(snode.name, self.number),
            "listen_address": self.listen_address,
            "tls_listen_address": self.tls_listen_address,
            "tls_cluster_listen_address": self.own_address if snode.tls_cluster_listen_address else "",
            "metrics_address": "",
            "memory_budget_bytes": max(1, budget_bytes // snode.workers),
        }
        changed = {name: "workers" for name, value in own.items() if value != getattr(snode, name)}
        settings = dataclasses.replace(snode, **own)
        return dataclasses.replace(loaded, settings=settings, origins={**loaded.origins, **changed})

    @contextlib.contextmanager
    def stop_with_parent(self) -> Iterator[asyncio.Event]:
        """Stop this process as by SIGTERM if its parent ends during the block.

        The end of the parent closes standard input. The yielded event is then set, so that the worker frees its ports
        at once for a new parent.
        """
        loop, number, is_parent_gone = asyncio.get_running_loop(), sys.stdin.fileno(), asyncio.Event()

        def ended() -> None:
            loop.remove_reader(number)
            is_parent_gone.set()
            os.kill(os.getpid(), signal.SIGTERM)

        loop.add_reader(number, ended)
        try:
            yield is_parent_gone
        finally:
            loop.remove_reader(number)
