"""A drill that is told to end leaves nothing running."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.e2e.drill import TOLD_TO_END
from tests.repo.tree import ROOT

DRILL = """
import asyncio, sys
from pathlib import Path
from ortoo.verification.servers.processes import RoleProcess
from tests.e2e.drill import run_drill, say

async def work():
    namesrv = RoleProcess("namesrv", Path(sys.argv[1]))
    await namesrv.start()
    try:
        say(str(namesrv.pid))
        await asyncio.Event().wait()
    finally:
        await namesrv.kill()

run_drill(work())
"""


async def test_a_drill_that_is_told_to_end_ends_what_it_started(tmp_path: Path) -> None:
    """It ends its processes in any state."""
    drill = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", DRILL, str(tmp_path)), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert drill.stdout is not None
    started = int(await drill.stdout.readline())
    os.kill(started, 0)
    drill.send_signal(signal.SIGTERM)
    assert await drill.wait() == TOLD_TO_END
    assert not Path(f"/proc/{started}").exists()
