"""The pages of docs/migrating: our program prints what the page shows, and the one before it is valid Python."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from ortoo.verification.servers import command
from tests.repo.tree import ROOT

PAGES = sorted(page for page in (ROOT / "docs/migrating").glob("*.md") if page.name != "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
async def test_the_program_of_a_page_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    """Unchanged, with `connect()` directed to a cluster by ORTOO_ADDRESS; the program before it compiles."""
    text = page.read_text(encoding="utf-8")
    before, program = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (expected,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    compile(before, str(page), "exec")
    async with command.dev_process(tmp_path) as dev:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program),
            env=command.environ(dev.address),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(60):
                printed, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0
    assert printed.decode() == expected
