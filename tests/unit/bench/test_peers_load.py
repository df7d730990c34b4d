"""Answers of a load program."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench.peers import load as loads
from bench.peers.load import Load, LoadFailed

PROGRAM = """
import sys
for line in sys.stdin:
    print("[0.1s][warning] a line of the Java machine", flush=True)
    if "hang" not in line:
        print("failed no route" if "fail" in line else 'end {"messages": 3}', flush=True)
"""


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Load]:
    """The program."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, stdin=pipe, stdout=pipe)
    yield Load(process, folder / "said")
    process.kill()
    await process.wait()


async def test_lines_of_the_java_machine_are_no_answers(tmp_path: Path) -> None:
    """Each command gets its own answer, also after a failed one."""
    async with running(tmp_path) as load:
        assert await load.run("send") == {"messages": 3}
        with pytest.raises(LoadFailed, match="no route"):
            await load.run("fail")
        assert await load.run("send") == {"messages": 3}


async def test_a_program_that_does_not_answer_is_named_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says which command of which kind has no answer."""
    monkeypatch.setattr(loads, "ANSWER_TIMEOUT_S", 0.1)
    async with running(tmp_path) as load:
        with pytest.raises(LoadFailed, match="no answer to `hang many 5` within"):
            await load.run("hang", "many", 5)
