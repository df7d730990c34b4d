"""Commands whose output is not read to its end, or cannot be written: `ortoo ... | head`, and a full device."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ortoo.client import Message, connect
from ortoo.verification.forks.spawning import forking, spawn
from ortoo.verification.servers import command
from ortoo.verification.servers.command import DevProcess
from ortoo.verification.servers.processes import ProcessCluster

EXIT_UNREAD = 141
"""The exit code that a shell shows for a program that SIGPIPE ended."""
TIMEOUT_S = 120.0


async def ended(
    words: Sequence[str], address: str, stdout: int, stderr: int = asyncio.subprocess.PIPE
) -> tuple[int, str]:
    """Run a command as a program, because the end of the interpreter matters: exit code, standard error."""
    with forking(wanted=False):
        process = await spawn(
            *words, env=command.environ(address), stdin=asyncio.subprocess.DEVNULL, stdout=stdout, stderr=stderr
        )
    async with asyncio.timeout(TIMEOUT_S):
        _, error = await process.communicate()
    assert process.returncode is not None
    return process.returncode, (error or b"").decode()


def unread() -> int:
    """The writing end of a pipe whose reader is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


async def test_a_command_ends_quietly_when_its_reader_is_gone(processes: ProcessCluster) -> None:
    """With 141 and no text, as is usual for the left side of `| head`, or with its own code where it failed."""
    writing, address = unread(), processes.address
    async with connect(address) as mq:
        await mq.admin.create_topic("t", queue_count=1)
    for words in (["topic", "list"], ["topic", "list", "--json"], ["send", "t", "x"]):
        assert await ended(["ortoo", *words], address, writing) == (EXIT_UNREAD, ""), words
    code, error = await ended(["ortoo", "topic", "describe", "nope"], address, writing)
    assert (code, error.count("\n")) == (1, 1)
    code, error = await ended(["ortoo", "--help"], address, writing)
    assert (code != 0, error) == (True, "")
    os.close(writing)


async def test_a_tail_ends_when_its_reader_is_gone(processes: ProcessCluster) -> None:
    """`ortoo tail t | head -1` ends without a further message."""
    async with connect(processes.address) as mq:
        await mq.admin.create_topic("t", queue_count=1)
        async with mq.producer("t") as producer:
            await producer.send(Message(b"the only one"))
    reading, writing = os.pipe()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(ended(["ortoo", "tail", "t"], processes.address, writing))
        with os.fdopen(reading) as shown:
            assert await asyncio.to_thread(shown.readline) == "the only one\n"
    assert running.result() == (EXIT_UNREAD, "")
    os.close(writing)


async def test_a_command_that_cannot_write_says_so(processes: ProcessCluster) -> None:
    """Lost output is an error in one line; lost error texts change no exit code."""
    full = os.open("/dev/full", os.O_WRONLY)
    address = processes.address
    async with connect(address) as mq:
        await mq.admin.create_topic("t", queue_count=1)
    for words in (["topic", "list"], ["profile", "list"]):
        code, error = await ended(["ortoo", *words], address, full)
        assert (code, error) == (1, "error: the system: No space left on device\n"), words
    null = os.open(os.devnull, os.O_WRONLY)
    for stderr in (full, unread()):
        assert (await ended(["ortoo", "topic", "describe", "nope"], address, null, stderr))[0] == 1
        os.close(stderr)
    os.close(null)


@pytest.mark.parametrize("words", [["ortoo-enode", "-p"], ["ortoo-namesrv", "-m"], ["ortoo-snode", "-p"]])
async def test_a_roles_front_ends_quietly_when_its_reader_is_gone(words: list[str]) -> None:
    """For example when settings are printed."""
    writing = unread()
    assert await ended(words, "", writing) == (EXIT_UNREAD, "")
    os.close(writing)


async def test_a_store_is_inspected_up_to_the_line_that_is_wanted(tmp_path: Path) -> None:
    """`ortoo-enode inspect DIR | head` ends without an error text too."""
    async with command.dev_process(tmp_path) as dev:
        assert isinstance(dev, DevProcess)
        await dev.stop()
    writing = unread()
    words = [sys.executable, "-m", "ortoo.enode", "inspect", str(dev.data / "enode")]
    assert await ended(words, "", writing) == (EXIT_UNREAD, "")
    os.close(writing)
