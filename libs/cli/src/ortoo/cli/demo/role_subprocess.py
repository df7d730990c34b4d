"""One role of the cluster as a separate process: start, kill, restart."""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from ortoo.common.errors import Unavailable

READY_TIMEOUT_S = 30.0


class RoleSubprocess:
    """A service process. After a restart it has the same port and data, like a pod with a stable identity."""

    def __init__(self, role: str, environ: Mapping[str, str], log: Path, module: str = "") -> None:
        """Prepare `python -m ortoo.ROLE`, or another `module`, with settings from `environ`; `log` is a file."""
        self.role = role
        self.address = ""
        self._environ = dict(environ)
        self._log = log
        self._module = module or f"ortoo.{role}"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process and return when it is ready. Errors: Unavailable, which shows the end of its log."""
        prefix = f"ORTOO_{self.role.upper()}_"
        settings = {prefix + name: value for name, value in self._environ.items()}
        settings[prefix + "LISTEN_ADDRESS"] = self.address or "127.0.0.1:0"
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self._module),
                env=os.environ | settings,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        line = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_TIMEOUT_S):
                line = await self._process.stdout.readline()
        ready_line = line.decode().split()
        if len(ready_line) != 3 or ready_line[0] != "ready":
            await self.kill()
            log_tail = self._log.read_text(errors="replace").splitlines()[-5:]
            raise Unavailable(
                f"the {self.role} did not become ready; the last lines of its log {self._log} are "
                + " | ".join(log_tail)
            )
        self.address = ready_line[2]

    @property
    def process_id(self) -> int:
        """The process id of the running process."""
        assert self._process is not None
        return self._process.pid

    async def wait_ended(self) -> int:
        """Wait until the process has ended on its own, and return its exit code."""
        assert self._process is not None
        return await self._process.wait()

    async def kill(self) -> None:
        """End the process immediately, as a power cut would (SIGKILL)."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """Shut the process down gracefully (SIGTERM), and wait until it has ended."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            try:
                async with asyncio.timeout(10):
                    await self._process.wait()
            except TimeoutError:
                await self.kill()


def free_addresses(count: int) -> list[str]:
    """`count` free addresses of this machine, for processes that need their addresses before they start."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
