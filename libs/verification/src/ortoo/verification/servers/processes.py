"""Roles as real processes: started, stopped, killed, frozen, and started again with the same data.

    async with process_cluster(folder) as cluster:
        await cluster.enode.kill()
        await cluster.enode.start()       # same port, same data

Every wait is for an event of the process itself: its `ready` line, or its end.
"""

import asyncio
import atexit
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ortoo.common.grpc.channels import Channels
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import namesrv_pb2, namesrv_pb2_grpc
from ortoo.verification.forks.memory_groups import memory_group, within
from ortoo.verification.forks.spawning import Spawned, spawn
from ortoo.verification.servers.ports import free_address, free_address_of_two

READY_TIMEOUT_S = 120.0
END_TIMEOUT_S = 60.0
LOG_LINES_SHOWN = 20
STACKS_AT_ABORT = {"PYTHONFAULTHANDLER": "1"}
"""With this in its environment, a process that is aborted writes the stacks of its threads into its log."""

_running: set["RoleProcess"] = set()


class DidNotStart(Exception):
    """The process ended before it was ready, or did not become ready in time."""

    def __init__(self, message: str, exit_code: int | None, log: str) -> None:
        """Carry the exit code (None = still running at the timeout) and the process's log."""
        super().__init__(f"{message}; its log ends with:\n{log}")
        self.exit_code = exit_code
        self.log = log


class RoleProcess:
    """One `python -m ortoo.ROLE`. It keeps its port and its data over restarts, as a pod with an identity does."""

    def __init__(self, role: str, folder: Path, environ: Mapping[str, object] | None = None) -> None:
        """Prepare role `role`; `environ` are settings without their prefix, such as `{"NAME": "enode-1"}`.

        Data go to `folder`/data, output to `folder`/log.
        """
        self.role = role
        self.folder = folder
        self.address = ""
        self._first_address = free_address_of_two() if role == "dev" else free_address()
        self.environ = {"DATA_DIR": folder / "data", **(environ or {})} if role != "snode" else dict(environ or {})
        self.arguments: tuple[str, ...] = ()
        self.environ_more: Mapping[str, str] = {}
        self.ready_timeout_s = READY_TIMEOUT_S
        self.group: Path | None = None
        """The control group of the process, which limits its memory; None = none."""
        self.stderr: int | None = None
        """The descriptor that becomes its standard error; None = `folder`/log."""
        self.starts = 0
        self._process: Spawned | None = None
        self._spawned = asyncio.Event()

    @property
    def data(self) -> Path:
        """The folder of the role's files."""
        return self.folder / "data"

    @property
    def pid(self) -> int:
        """The running process."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.returncode is None

    @property
    def port(self) -> int:
        """Its port, available after its first start."""
        return int(self.address.rpartition(":")[2])

    def log_text(self) -> str:
        """Everything that the process has written to stderr, over all its starts."""
        log = self.folder / "log"
        return log.read_text(errors="replace") if log.exists() else ""

    async def wait_for_log(self, text: str) -> str:
        """Wait until stderr of any of its starts has `text`; returns the last such line. Errors: TimeoutError."""
        clock = SystemClock()
        async with asyncio.timeout(END_TIMEOUT_S):
            while text not in self.log_text():
                await clock.sleep(0.02)
        return [line for line in self.log_text().splitlines() if text in line][-1]

    async def start(self) -> None:
        """Start it and return when it is ready. Errors: DidNotStart."""
        assert not self.alive, f"{self.role} is running already"
        self.folder.mkdir(parents=True, exist_ok=True)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ORTOO_")}
        listen_address = self.address or self._first_address
        words = self._command(listen_address)
        with (self.folder / "log").open("ab") as log:
            log_begin = log.tell()
            self._process = await spawn(
                *(words if self.group is None else within(self.group, words)),
                env=clean | STACKS_AT_ABORT | self._settings(listen_address) | dict(self.environ_more),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log if self.stderr is None else self.stderr,
            )
        self.starts += 1
        _running.add(self)
        self._spawned.set()
        line = await self._ready_line()
        address = self._address_in(line)
        if address is None:
            exit_code = self._process.returncode
            if line:
                await self.kill()
            said = (self.folder / "log").read_bytes()[log_begin:].decode(errors="replace")
            shown = "\n".join(said.splitlines()[-LOG_LINES_SHOWN:])
            raise DidNotStart(f"{self.role} said {line!r} instead of being ready", exit_code, shown)
        self.address = address

    def _command(self, listen_address: str) -> Sequence[str]:
        return (sys.executable, "-m", f"ortoo.{self.role}", *self.arguments)

    def _settings(self, listen_address: str) -> dict[str, str]:
        settings = {"LISTEN_ADDRESS": listen_address, **self.environ}
        return {f"ORTOO_{self.role.upper()}_{name}": str(value) for name, value in settings.items()}

    def _address_in(self, ready_line: str) -> str | None:
        words = ready_line.split()
        return words[2] if len(words) == 3 and words[0] == "ready" else None

    async def _ready_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(self.ready_timeout_s):
                line = await self._process.stdout.readline()
                if not line:
                    await self._process.wait()
        except TimeoutError:
            await self.kill()
            return f"nothing in {self.ready_timeout_s} s"
        return line.decode()

    async def wait_until_spawned(self) -> None:
        """Wait until the process exists, ready or not."""
        while not self.alive:
            self._spawned.clear()
            await self._spawned.wait()

    async def kill(self) -> None:
        """End it without warning (SIGKILL)."""
        if self._process is not None and self.alive:
            self._process.kill()
            await self._process.wait()
        _running.discard(self)

    async def stop(self) -> int:
        """Ask it to drain and end (SIGTERM); returns its exit code. One that does not end in time is killed."""
        if self._process is None:
            return 0
        if self.alive:
            self._process.terminate()
            self.thaw()
        return await self.wait()

    async def wait(self) -> int:
        """Wait until it ends on its own; returns its exit code. Errors: AssertionError when it takes too long."""
        assert self._process is not None
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                code = await self._process.wait()
        except TimeoutError:
            await self._abort()
            raise AssertionError(f"{self.role} did not end within {END_TIMEOUT_S} s:\n{self.log_text()}") from None
        _running.discard(self)
        return code

    async def _abort(self) -> None:
        """End it so that its log has the stack of each thread."""
        assert self._process is not None
        self._process.send_signal(signal.SIGABRT)
        await self._process.wait()
        _running.discard(self)

    async def restart(self) -> None:
        """Kill it and start it again, on the same port and the same data."""
        await self.kill()
        await self.start()

    def freeze(self) -> None:
        """Stop its execution (SIGSTOP): it neither answers nor closes its connections. Returns when it has stopped."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Let a frozen process continue (SIGCONT)."""
        if self._process is not None and self.alive:
            self._process.send_signal(signal.SIGCONT)

    def _kill_now(self) -> None:
        if self._process is not None and self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)


@atexit.register
def _leave_nothing_running() -> None:
    for process in tuple(_running):
        process._kill_now()


@dataclass(frozen=True, slots=True)
class ProcessCluster:
    """The processes of one cluster."""

    folder: Path
    namesrv: RoleProcess
    enodes: Sequence[RoleProcess]
    snodes: Sequence[RoleProcess]

    @property
    def enode(self) -> RoleProcess:
        """The only enode, or the first."""
        return self.enodes[0]

    @property
    def snode(self) -> RoleProcess:
        """The only snode, or the first."""
        return self.snodes[0]

    @property
    def roles(self) -> tuple[RoleProcess, ...]:
        """All processes, in the usual order of their start."""
        return (self.namesrv, *self.enodes, *self.snodes)

    @property
    def address(self) -> str:
        """Where clients connect."""
        return self.snode.address

    async def wait_until_alive(self) -> None:
        """Wait until every enode and snode is alive at the name server. Errors: TimeoutError."""
        wanted = {role.folder.name for role in (*self.enodes, *self.snodes)}
        alive: set[str] = set()
        async with asyncio.timeout(READY_TIMEOUT_S), Channels() as channels:
            stub = namesrv_pb2_grpc.NameServiceStub(channels.channel_to(self.namesrv.address))
            async for news in stub.WatchRoutes(namesrv_pb2.WatchRoutesRequest(), wait_for_ready=True):
                known = {e.name: e.alive for e in news.enodes} | {s.name: s.alive for s in news.snodes}
                alive = {name for name in alive | known.keys() if known.get(name, name in alive)}
                if wanted <= alive:
                    return

    def logs(self) -> str:
        """The end of each process's log, for the report of a failed test."""
        return "\n".join(f"--- {role.folder.name}\n{role.log_text()[-3000:]}" for role in self.roles)


@contextlib.asynccontextmanager
async def process_cluster(
    folder: Path,
    *,
    enodes: int = 1,
    snodes: int = 1,
    environ: Mapping[str, Mapping[str, object]] | None = None,
    memory_bytes: Mapping[str, int] | None = None,
    environ_more: Mapping[str, str] | None = None,
    transport: str = "",
) -> AsyncIterator[ProcessCluster]:
    """Start a name server, enodes `enode-0`... and snodes `snode-0`...; leave nothing running.

    `environ` has each role's settings, such as `{"enode": {"STORE_SEGMENT_BYTES": 1 << 20}}`. `memory_bytes` limits the
    memory of each process of a role, where this process may create control groups. `environ_more` is the environment
    of every role beside its settings. `transport` is that setting of every role; empty = its default.
    """
    chosen = {"namesrv": {}, "enode": SMALL_STORE, "snode": {}, **(environ or {})}
    if transport:
        chosen = {role: {"TRANSPORT": transport, **settings} for role, settings in chosen.items()}
    cluster = ProcessCluster(
        folder,
        RoleProcess("namesrv", folder / "namesrv", chosen["namesrv"]),
        [RoleProcess("enode", folder / f"enode-{n}", {"NAME": f"enode-{n}", **chosen["enode"]}) for n in range(enodes)],
        [RoleProcess("snode", folder / f"snode-{n}", {"NAME": f"snode-{n}", **chosen["snode"]}) for n in range(snodes)],
    )
    for role in cluster.roles:
        role.environ_more = environ_more or {}
    groups = contextlib.AsyncExitStack()
    try:
        for role in cluster.roles if memory_bytes else ():
            role.group = await groups.enter_async_context(
                memory_group(role.folder.name, (memory_bytes or {})[role.role])
            )
        await cluster.namesrv.start()
        for role in (*cluster.enodes, *cluster.snodes):
            role.environ["NAMESRV_ADDRESS"] = cluster.namesrv.address
        async with asyncio.TaskGroup() as group:
            starts = [group.create_task(role.start()) for role in (*cluster.enodes, *cluster.snodes)]
        assert all(start.done() for start in starts)
        await cluster.wait_until_alive()
        yield cluster
    finally:
        for role in reversed(cluster.roles):
            await role.kill()
        await groups.aclose()


SMALL_STORE: Mapping[str, Any] = {"STORE_SEGMENT_BYTES": 4 << 20, "STORE_HEADROOM_BYTES": 0}
"""Settings of an enode whose segments change often and fit anywhere."""
