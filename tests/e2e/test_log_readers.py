"""Short runs with a log that is not read; `make hostile` takes a minute for each kind of reader."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from ortoo.client import Message, connect
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.command import DevProcess
from ortoo.verification.servers.ports import free_address, free_ports
from ortoo.verification.servers.processes import RoleProcess
from ortoo.verification.servers.scrape import get
from tests.e2e.log_readers import CLOSE, READERS, LogPipe, endure

PROCESSES = {"namesrv", "enode-0", "snode-0", "1", "2", "parent"}
"""The last three are the workers of a snode and their parent."""
SECONDS = 2.0
SIMILAR = {"slow", "closed"}
"""Readers that differ little from a stopped one and a killed one."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "reader", [pytest.param(name, marks=pytest.mark.deep) if name in SIMILAR else name for name in READERS]
)
async def test_no_role_ends_or_waits_when_its_log_is_not_read(tmp_path: Path, reader: str) -> None:
    """Each role serves, answers probes, counts the lines that it dropped, and ends with 0 on request.

    A reader that is back reads about the gap. The parent of workers logs little: its queue suffices where lines are
    delayed, and they are lost where the log refuses them.
    """
    verdict = await endure(tmp_path, reader, seconds=SECONDS)
    assert verdict.broken == [], verdict
    assert verdict.sent > 0
    assert verdict.found > 0
    late = {"parent"} if reader in ("stopped", "slow") else set[str]()
    assert {name for name, count in verdict.dropped.items() if count} >= PROCESSES - late
    assert verdict.dropped.keys() == PROCESSES
    if reader == "stopped":
        assert verdict.told.keys() == {"namesrv", "enode-0", "snode-0", "snode-1"}


@pytest.mark.parametrize("reader", ["killed", "stopped"])
async def test_dev_goes_on_when_its_log_is_not_read(tmp_path: Path, reader: str) -> None:
    """The whole cluster in one process logs a hundred lines without a reader; sends continue, and it ends with 0."""
    dev, pipe = DevProcess(tmp_path), LogPipe()
    dev.stderr = pipe.writing
    try:
        await dev.start()
        async with asyncio.timeout(120), connect(dev.address) as mq:
            await mq.admin.create_topic("t", queue_count=1)
            if reader == "killed":
                pipe.kill()
            else:
                pipe.stop()
            async with mq.producer("t") as producer:
                for number in range(100):
                    level = {"log_level": ("info", "warning")[number % 2]}
                    for role in ("namesrv", "enode", "snode"):
                        await mq.admin.operations.update_settings(role, level)
                    await producer.send(Message(b"goes on"))
        assert await dev.stop() == 0
    finally:
        await dev.kill()
        pipe.close()


@contextlib.asynccontextmanager
async def started(words: Sequence[str], environ: Mapping[str, str], **files: int) -> AsyncIterator[tuple[int, str]]:
    """Start a role as a program; yield its process id and health address once it is ready. Stop it at the end."""
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    role = words[-1].rpartition(".")[2].upper()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ORTOO_")}
    own = {f"ORTOO_{role}_{name}": value for name, value in {**environ, "METRICS_ADDRESS": metrics}.items()}
    process = await asyncio.create_subprocess_exec(*words, env={**clean, **own}, **files)  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(120):
            while True:
                assert process.returncode is None
                with contextlib.suppress(OSError):
                    if (await get(metrics, "/readyz")).status == 200:
                        break
                await SystemClock().sleep(0.05)
            yield process.pid, metrics
            process.terminate()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("role", ["namesrv", "enode", "snode"])
async def test_nothing_becomes_a_standard_file_of_a_role(tmp_path: Path, role: str) -> None:
    """A role without standard files serves, and none of its files and sockets gets one of their numbers."""
    name_server = RoleProcess("namesrv", tmp_path / "other")
    environ = {"LISTEN_ADDRESS": free_address(), "DATA_DIR": str(tmp_path / "data"), "NAME": "closed"}
    try:
        if role != "namesrv":
            await name_server.start()
            environ["NAMESRV_ADDRESS"] = name_server.address
        if role == "snode":
            del environ["DATA_DIR"]
        words = (sys.executable, "-c", CLOSE.format(0), "-m", f"ortoo.{role}")
        async with started(words, environ) as (pid, _):
            assert [os.readlink(f"/proc/{pid}/fd/{n}") for n in range(3)] == ["/dev/null", "/dev/null", "/dev/full"]
    finally:
        await name_server.kill()


@pytest.mark.parametrize("reader", ["killed", "stopped"])
async def test_a_role_gets_ready_when_nobody_reads_its_standard_output(tmp_path: Path, reader: str) -> None:
    """As with `2>&1 | tee`: the line about readiness has no reader, or one that hangs."""
    pipe = LogPipe()
    pipe.kill() if reader == "killed" else pipe.stop()
    os.set_blocking(pipe.writing, False)
    with contextlib.suppress(OSError):
        while True:
            os.write(pipe.writing, b"x")
    os.set_blocking(pipe.writing, True)
    environ = {"LISTEN_ADDRESS": free_address(), "DATA_DIR": str(tmp_path / "data")}
    try:
        words = (sys.executable, "-m", "ortoo.namesrv")
        async with started(words, environ, stdout=pipe.writing, stderr=pipe.writing):
            pass
    finally:
        pipe.close()
