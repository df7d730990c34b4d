"""Answers of a load program."""

import asyncio
import sys
from pathlib import Path

import pytest

from bench.peers.load import Load, LoadFailed

PROGRAM = """
import sys
for line in sys.stdin:
    print("[0.1s][warning] a line of the Java machine", flush=True)
    print("failed no route" if "fail" in line else 'end {"messages": 3}', flush=True)
"""


async def test_lines_of_the_java_machine_are_no_answers(tmp_path: Path) -> None:
    """Each command gets its own answer, also after a failed one."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, stdin=pipe, stdout=pipe)
    load = Load(process, tmp_path / "said")
    assert await load.run("send") == {"messages": 3}
    with pytest.raises(LoadFailed, match="no route"):
        await load.run("fail")
    assert await load.run("send") == {"messages": 3}
    process.kill()
    await process.wait()
