"""A library is quiet until a process says how loud it may be."""

import subprocess
import sys

PROGRAM = """
from ortoo.common.process import logs
log = logs.get_logger("planted")
log.info("quiet")
log.warning("loud")
logs.configure(level="info")
log.info("asked for")
"""


def test_a_program_that_says_nothing_about_logs_gets_warnings_on_stderr_alone() -> None:
    """Standard output belongs to the application; news below a warning come only when they are asked for."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "quiet" not in done.stderr
    assert "loud" in done.stderr
    assert "asked for" in done.stderr


CLOSED = """
import io, sys
standard = sys.stderr
sys.stderr = io.StringIO()
from ortoo.common.process import logs
log = logs.get_logger("planted")
logs.configure(level="info")
sys.stderr.close()
sys.stderr = standard
log.error("still heard")
"""


def test_a_log_outlives_the_standard_error_it_began_with() -> None:
    """A process that replaces and closes its standard error keeps its log, and a log line never raises."""
    done = subprocess.run([sys.executable, "-c", CLOSED], capture_output=True, text=True, check=True)
    assert "still heard" in done.stderr
