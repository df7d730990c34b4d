"""The cluster under test: three real processes with the default, durable settings, on this machine."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ortoo.cli.demo.role_process import RoleProcess


@dataclass(frozen=True, slots=True)
class Cluster:
    """The running roles."""

    namesrv: RoleProcess
    enode: RoleProcess
    snode: RoleProcess
    folder: Path

    @property
    def address(self) -> str:
        """Where clients connect."""
        return self.snode.address

    def memory_mib(self) -> dict[str, float]:
        """Resident memory of each role."""
        return {role.role: role.memory_mib() for role in (self.namesrv, self.enode, self.snode)}


@asynccontextmanager
async def cluster(folder: Path | None = None, **enode_settings: str) -> AsyncIterator[Cluster]:
    """Start name server, enode and snode, each a process; stop them and remove their data at the end.

    `enode_settings` are environment variables of the enode, without their prefix.
    """
    async with AsyncExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ortoo-bench-")))

        async def start(role: str, **environ: str) -> RoleProcess:
            assert folder is not None
            process = RoleProcess(role, environ, folder / f"{role}.log")
            stack.push_async_callback(process.stop)
            await process.start()
            return process

        namesrv = await start("namesrv", DATA_DIR=str(folder / "namesrv"))
        enode = await start("enode", DATA_DIR=str(folder / "enode"), NAMESRV_ADDRESS=namesrv.address, **enode_settings)
        snode = await start("snode", NAMESRV_ADDRESS=namesrv.address)
        yield Cluster(namesrv, enode, snode, folder)
