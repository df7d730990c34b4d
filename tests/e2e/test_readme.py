"""What the README tells a newcomer to type works as it stands there, only at another port."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
TIMEOUT_S = 30.0


def blocks(language: str) -> list[str]:
    """The README's code blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def commands(word: str) -> list[str]:
    """The README's shell lines that begin with a word."""
    return [line for block in blocks("bash") for line in block.splitlines() if line.startswith(f"{word} ")]


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    """Where a cluster of `ortoo dev` listens."""
    process = await asyncio.create_subprocess_exec(
        *(str(BIN / "ortoo"), "dev", "--data-dir", str(tmp_path / "data"), "--listen-address", "127.0.0.1:0"),
        stdout=asyncio.subprocess.PIPE,
        cwd=tmp_path,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(TIMEOUT_S):
            said = (await process.stdout.readline()).decode()
        ready = re.match(r"ready on (\S+?),", said)
        assert ready is not None, said
        yield ready[1]
        process.terminate()
        async with asyncio.timeout(TIMEOUT_S):
            await process.communicate()
        assert process.returncode == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def type_in(line: str, address: str, *, until: str) -> str:
    """Run a line of the README in a shell, end it once it has printed `until`, and return what it printed."""
    path = f"{BIN}:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", "exec " + line.replace("localhost:8081", address)),
        env={**os.environ, "PATH": path, "ORTOO_ADDRESS": address},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    printed = ""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while until not in printed:
                chunk = await process.stdout.readline()
                if not chunk:
                    break
                printed += chunk.decode()
            if process.returncode is None and " tail " in line:
                process.terminate()
            printed += (await process.stdout.read()).decode()
            assert await process.wait() == 0, printed
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert until in printed, f"{line}\n{printed}"
    return printed


async def test_the_commands_of_the_readme_work(address: str) -> None:
    """Create a topic, send, tail: with the `ortoo` command."""
    create, send, tail = commands("ortoo")
    await type_in(create, address, until="created topic t")
    await type_in(send, address, until="at offset 0")
    await type_in(tail, address, until="hello")


async def test_the_same_works_with_grpcurl_alone(address: str) -> None:
    """Create a topic, send, tail: with reflection and nothing of ours."""
    create, publish, tail = commands("grpcurl")
    await type_in(create, address, until='"name": "g"')
    await type_in(publish, address, until='"receipts"')
    await type_in(tail, address, until=': "hello"')


async def test_the_program_of_the_readme_works(address: str, tmp_path: Path) -> None:
    """The Python program sends a message and consumes it."""
    (program,) = blocks("python")
    file = tmp_path / "program.py"
    file.write_text(program.replace("localhost:8081", address), encoding="utf-8")
    printed = await type_in(f"{sys.executable} {file}", address, until="two fresh horses")
    assert "durable, at offset 0" in printed
