"""A system under comparison: its processes, their resource use, and Java servers that always end."""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.processes import cpu_s
from bench.report import Figures

PR_SET_PDEATHSIG = 1
DYING_WITH_PARENT = f"""
import ctypes, os, sys
ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, {signal.SIGKILL:d})
os.execvp(sys.argv[1], sys.argv[1:])
"""
READY_TIMEOUT_S = 120.0
END_TIMEOUT_S = 10.0
LOOK_S = 0.05


class DidNotStart(Exception):
    """A server ended, or was not ready in time; the message has the end of its output."""


@dataclass(frozen=True, slots=True)
class Servers:
    """A running system."""

    address: str
    """Where its clients connect."""
    process_ids: Mapping[str, int]
    """Its server processes, by their names in results."""

    def cpu_s(self) -> dict[str, float]:
        """Processor seconds that each server has used, including threads that ended."""
        return {name: cpu_s(process_id) for name, process_id in self.process_ids.items()}

    def memory_mib(self) -> Figures:
        """Resident memory of all servers together, and the part that no file backs."""
        kib = [_status_kib(process_id) for process_id in self.process_ids.values()]
        return {
            "resident_mib": round(sum(resident for resident, _ in kib) / 1024, 1),
            "without_files_mib": round(sum(resident - files for resident, files in kib) / 1024, 1),
        }


def _status_kib(process_id: int) -> tuple[int, int]:
    text = Path(f"/proc/{process_id}/status").read_text()
    found = dict(re.findall(r"(VmRSS|RssFile):\s+(\d+) kB", text))
    return int(found["VmRSS"]), int(found["RssFile"])


def state_of(process_id: int) -> str:
    """The state of a process, one letter as in `ps`: `T` is stopped, `X` has ended."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def at_home(folder: Path) -> tuple[str, str]:
    """Options that make a Java program keep its logs, certificates and unpacked libraries in a folder."""
    return f"-Duser.home={folder}", f"-Djava.io.tmpdir={folder}"


def dying_with_parent(*words: str) -> tuple[str, ...]:
    """A command that is killed when the benchmark ends, for whatever reason.

    The child requests this signal itself. With `preexec_fn`, code between fork and exec runs beside gRPC's fork
    handlers, and one child in fifty died there.
    """
    return sys.executable, "-SEc", DYING_WITH_PARENT, *words


@asynccontextmanager
async def java_server(
    folder: Path,
    name: str,
    jars: Path,
    heap_mib: int,
    words: Sequence[str],
    port: int,
    *,
    options: Sequence[str],
    ready: str = "",
    **environ: str,
) -> AsyncIterator[int]:
    """Run a class from `jars` with a heap of `heap_mib` and the `options` of its project's start script.

    Yields its process id when it listens on `port` and has printed `ready`: it may listen before it is registered. Its
    output goes into the folder. Errors: DidNotStart.
    """
    said = folder / f"{name}.out"
    heap = (f"-Xms{heap_mib}m", f"-Xmx{heap_mib}m", f"-XX:MaxDirectMemorySize={heap_mib}m")
    with said.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *dying_with_parent("java", *heap, *options, *at_home(folder), "-cp", f"{jars}/*", *words),
            env=os.environ | environ,
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        await _listening(process, port, said, ready)
        yield process.pid
    finally:
        await end(process)


async def end(process: asyncio.subprocess.Process) -> None:
    """Ask a process to end, and kill it if it does not."""
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _listening(process: asyncio.subprocess.Process, port: int, said: Path, ready: str) -> None:
    deadline = time.perf_counter() + READY_TIMEOUT_S
    while process.returncode is None and time.perf_counter() < deadline:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(LOOK_S)
            continue
        writer.close()
        if ready in await asyncio.to_thread(said.read_text, errors="replace"):
            return
        await asyncio.sleep(LOOK_S)
    raise DidNotStart(f"no server listens on port {port}; {said.name} ends with:\n{_end_of(said)}")


def _end_of(said: Path) -> str:
    return "\n".join(said.read_text(errors="replace").splitlines()[-20:])
