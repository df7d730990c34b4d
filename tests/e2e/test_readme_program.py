"""The README's Python program, unchanged except for its port."""

import asyncio
import re
import sys
from pathlib import Path

from ortoo.verification.servers import command

README = Path(__file__).parents[2] / "README.md"


async def test_the_program_of_the_readme_sends_and_consumes(tmp_path: Path) -> None:
    """It prints where its message was stored, receives it as a group member, and ends on its own."""
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    async with command.dev_process(tmp_path) as dev:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program.replace("localhost:8081", dev.address)), stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(30):
            printed, _ = await process.communicate()
    assert process.returncode == 0
    assert printed.decode().splitlines() == ["durable, at offset 0", "two fresh horses"]
