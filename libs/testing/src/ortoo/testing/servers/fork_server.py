"""Processes of ours without the second that their imports take: forked from one that has imported everything.

    python -m ortoo.testing.servers.fork_server DESCRIPTOR

A forked process has its own number, signals, files, environment and exit code, and runs the module or command as its
own main program; only the imports are done. It becomes a child of whoever asked, which is a subreaper.
Tests of the start itself take the real thing: `asyncio.create_subprocess_exec`.
"""

import asyncio
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
PRELOADED = (
    "ortoo.namesrv.__main__", "ortoo.enode.__main__", "ortoo.snode.__main__", "ortoo.cli.app", "ortoo.cli.dev.cluster",
    "ortoo.client.blocking", "ortoo.cli.doctor.run", "ortoo.namesrv.app", "ortoo.enode.app", "ortoo.snode.app",
)  # fmt: skip
OURS = ("ortoo.", "tests.")
REQUEST_BYTES_MAX = 1 << 20
UNREAD_S = 0.5


class ForkServer:
    """The asking side. One for a process that tests."""

    def __init__(self) -> None:
        """Start the server; it imports while others go on."""
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "ortoo.testing.servers.fork_server", str(theirs.fileno())]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ORTOO_")}
        self._server = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=clean, stdin=subprocess.DEVNULL)
        theirs.close()
        self._one_at_a_time = threading.Lock()

    def takes(self, words: Sequence[str]) -> bool:
        """Whether this is a command that can be forked."""
        return words[0] == "ortoo" or (
            len(words) > 2 and words[0] == sys.executable and words[1] == "-m" and words[2].startswith(OURS)
        )

    def fork(self, words: Sequence[str], environ: Mapping[str, str], files: Sequence[int]) -> int:
        """Run a command with these standard files; the number of its process, which is this one's child."""
        request = json.dumps({"words": list(words), "environ": dict(environ), "folder": os.getcwd()}).encode()
        with self._one_at_a_time:  # answers do not say whose they are
            socket.send_fds(self._socket, [request], list(files))
            answer = self._socket.recv(32)
        if not answer:
            raise ConnectionError("the fork server has ended")
        return int(answer)

    def close(self) -> None:
        """End the server; what it forked goes on."""
        self._socket.close()
        self._server.wait()


class ForkedProcess:
    """A forked process, as `asyncio.subprocess.Process` shows one."""

    def __init__(self, pid: int) -> None:
        """It runs."""
        self.pid = pid
        self.returncode: int | None = None
        self.stdin: int | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._pipes: list[_Pipe] = []
        self._descriptor = os.pidfd_open(pid)
        self._loop.add_reader(self._descriptor, self._reap)

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing happens when it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    async def wait(self) -> int:
        """Wait until it has ended; its exit code, or minus the signal."""
        await self._ended.wait()
        for pipe in self._pipes:
            await pipe.close_soon()
        assert self.returncode is not None
        return self.returncode

    async def communicate(self, given: bytes | None = None) -> tuple[bytes, bytes]:
        """Give it its standard input, and read all that it says until it ends."""
        if self.stdin is not None:
            await asyncio.to_thread(_write_all, self.stdin, given or b"")
            self.stdin = None
        said = [await reader.read() if reader is not None else b"" for reader in (self.stdout, self.stderr)]
        await self.wait()
        return said[0], said[1]

    async def reading(self, descriptor: int) -> asyncio.StreamReader:
        """What comes out of a pipe from it."""
        reader = asyncio.StreamReader(limit=REQUEST_BYTES_MAX)
        pipe = _Pipe(reader)
        self._pipes.append(pipe)
        await self._loop.connect_read_pipe(lambda: pipe, os.fdopen(descriptor, "rb"))
        return reader

    def _reap(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set()


async def forked(
    server: ForkServer, *words: str, env: Mapping[str, str], stdin: int, stdout: int, stderr: Any
) -> ForkedProcess:
    """As `asyncio.create_subprocess_exec`, of a command that `server` takes."""
    ours: list[int] = []
    theirs: list[int] = []
    for number, chosen in enumerate((stdin, stdout, stderr)):
        if chosen == asyncio.subprocess.PIPE:
            read, write = os.pipe()
            theirs.append(read if number == 0 else write)
            ours.append(write if number == 0 else read)
        else:
            is_none = chosen == asyncio.subprocess.DEVNULL
            theirs.append(os.open(os.devnull, os.O_RDWR) if is_none else os.dup(chosen.fileno()))
            ours.append(-1)
    try:
        process = ForkedProcess(await asyncio.to_thread(server.fork, words, env, theirs))
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    process.stdin = ours[0] if ours[0] >= 0 else None
    process.stdout, process.stderr = [await process.reading(one) if one >= 0 else None for one in ours[1:]]
    return process


class _Pipe(asyncio.StreamReaderProtocol):
    """What reads a pipe, and knows when it is closed."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self._is_closed = asyncio.Event()
        self._link: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._link = transport
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed.set()
        super().connection_lost(exc)

    async def close_soon(self) -> None:
        """Wait until all is read; a pipe that nobody reads any more is closed."""
        try:
            async with asyncio.timeout(UNREAD_S):
                await self._is_closed.wait()
        except TimeoutError:
            assert self._link is not None
            self._link.close()


def _write_all(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        try:
            file.write(data)
            file.flush()
        except BrokenPipeError:
            return


def serve(link: socket.socket) -> dict[str, Any]:
    """Fork for each request; returns, in a forked process, what it is to do. Ends with whoever asks."""
    while True:
        data, files, _, _ = socket.recv_fds(link, REQUEST_BYTES_MAX, 3)
        if not data:
            os._exit(0)
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            for descriptor in files:
                os.close(descriptor)
            continue
        child = os.fork()
        if child:
            link.send(str(child).encode())
            os._exit(0)  # so that the child gets another parent
        link.close()
        for number, descriptor in enumerate(files):
            os.dup2(descriptor, number)
            os.close(descriptor)
        request: dict[str, Any] = json.loads(data)
        return request


def become(words: Sequence[str], environ: Mapping[str, str], folder: str) -> None:
    """Run a command as the main program of this process."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    if environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    if words[0] == "ortoo":
        sys.argv = list(words)
        from ortoo.cli.app import main

        main()
        return
    sys.argv = list(words[2:])
    sys.modules.pop(f"{words[2]}.__main__", None)  # its imports are done; it itself is run
    runpy.run_module(words[2], run_name="__main__", alter_sys=True)


def main() -> None:
    """Import what is to be forked, and serve."""
    link = socket.socket(fileno=int(sys.argv[1]))
    for module in PRELOADED:
        importlib.import_module(module)
    gc.freeze()  # what was imported is never garbage, and its memory stays shared
    request = serve(link)
    become(request["words"], request["environ"], request["folder"])


if __name__ == "__main__":
    main()
