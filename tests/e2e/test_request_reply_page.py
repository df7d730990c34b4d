"""The program of docs/request-reply.md, unchanged except for its port."""

import asyncio
import re
import sys
from pathlib import Path

from ortoo.client import connect
from ortoo.verification.servers import command

PAGE = Path(__file__).parents[2] / "docs/request-reply.md"


async def test_the_program_about_requests_gets_a_reply_and_a_timeout(tmp_path: Path) -> None:
    """Its first request is answered, the second one is not, because the replier has ended."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    async with command.dev_process(tmp_path) as dev:
        async with connect(dev.address) as mq:
            await mq.admin.create_topic("prices")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program.replace("localhost:8081", dev.address)), stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(120):
            printed, _ = await process.communicate()
    assert process.returncode == 0
    assert printed.decode() == "42 cents for apples\nno reply within 0.5 s\n"
