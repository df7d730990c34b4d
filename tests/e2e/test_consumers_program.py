"""The program of docs/consumers.md, unchanged except for its port."""

import asyncio
import re
import sys
from pathlib import Path

from ortoo.verification.servers import command

PAGE = Path(__file__).parents[2] / "docs/consumers.md"


async def test_the_program_about_consumers_processes_in_order(tmp_path: Path) -> None:
    """E-151, E-013: its second message fails once, blocks its queue, and is processed before the third one."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    async with command.dev_process(tmp_path) as dev:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program.replace("localhost:8081", dev.address)), stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(40):
            printed, _ = await process.communicate()
    assert process.returncode == 0
    assert printed.decode() == "order 0, tried, order 1, order 2\n"
