"""The `ortoo` command as users run it, and `ortoo dev` as a process."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ortoo.verification.forks.spawning import spawn
from ortoo.verification.servers import grpcurl
from ortoo.verification.servers.processes import RoleProcess

TIMEOUT_S = 120.0
USER_VARIABLES = ("ORTOO_ACCESS_KEY", "ORTOO_SECRET_KEY")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of one run of a command."""

    exit_code: int
    stdout: str
    stderr: str


def environ(address: str) -> dict[str, str]:
    """The environment of a terminal in which this workspace's commands are on the path."""
    paths = (str(Path(sys.executable).parent), str(grpcurl.find().parent), os.environ.get("PATH", ""))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ORTOO_")}
    # Profiles of the user that runs the tests do not apply.
    own = {"ORTOO_ADDRESS": address, "XDG_CONFIG_HOME": os.devnull}
    return clean | own | {"PATH": ":".join(paths), "COLUMNS": "200", "NO_COLOR": "1"}


async def run(
    arguments: Sequence[str],
    address: str,
    *,
    until_output: str = "",
    stdin_text: bytes = b"",
    timeout_s: float = TIMEOUT_S,
    user: tuple[str, str] | None = None,
) -> CommandResult:
    """Run a command to its end; with `until_output`, interrupt it (Ctrl-C) when that text is on its standard output.

    `user` = the access key and the secret key that sign its calls.

    Errors: TimeoutError, after the process was killed.
    """
    process = await spawn(
        *arguments,
        env=environ(address) | (dict(zip(USER_VARIABLES, user, strict=True)) if user else {}),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    out = b""
    try:
        async with asyncio.timeout(timeout_s):
            while until_output and until_output.encode() not in out and (line := await process.stdout.readline()):
                out += line
            if until_output and process.returncode is None:
                process.send_signal(signal.SIGINT)
            rest, error = await process.communicate(stdin_text)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return CommandResult(process.returncode, (out + rest).decode(), error.decode())


class DevProcess(RoleProcess):
    """`ortoo dev`: the whole cluster in one process."""

    def __init__(self, folder: Path) -> None:
        """Keep the data in `folder`/data."""
        super().__init__("dev", folder)

    def _command(self, listen_address: str) -> Sequence[str]:
        return ("ortoo", "dev", "--listen-address", listen_address, "--data-dir", str(self.data))

    def _settings(self, listen_address: str) -> dict[str, str]:
        return {"PATH": environ("")["PATH"]}

    def _address_in(self, ready_line: str) -> str | None:
        found = re.match(r"ready on (\S+:\d+),", ready_line)
        return found.group(1) if found else None


@contextlib.asynccontextmanager
async def dev_process(folder: Path) -> AsyncIterator[DevProcess]:
    """Run `ortoo dev` on a free port with its data in `folder`; it is ready when the block is entered."""
    dev = DevProcess(folder)
    try:
        await dev.start()
        yield dev
    finally:
        await dev.kill()
