"""A library logs little until a process configures its level."""

import json
import subprocess
import sys

PROGRAM = """
from ortoo.common.logs import log_event, logger as logs
log = logs.get_logger("planted")
log.emit(log_event.info("quiet", "", ""))
log.emit(log_event.warning("loud", "", ""))
logs.configure(level="info")
log.emit(log_event.info("asked for", "", ""))
"""


def test_a_program_that_says_nothing_about_logs_gets_warnings_on_stderr_alone() -> None:
    """Standard output belongs to the application; lines below a warning are logged only after `configure`."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "quiet" not in done.stderr
    assert "loud" in done.stderr
    assert "asked for" in done.stderr


HALF_IMPORTED = """
import sys, types
from ortoo.common.logs import log_event, logger as logs
sys.modules["structlog"] = types.ModuleType("structlog")
logs.get_logger("planted").emit(log_event.warning("still heard", "", ""))
"""


def test_a_line_is_logged_while_another_thread_imports_structlog() -> None:
    """A module whose import has not ended has no names yet; the line goes to Python's logging."""
    done = subprocess.run([sys.executable, "-c", HALF_IMPORTED], capture_output=True, text=True, check=True)
    assert "still heard" in done.stderr


CLOSED = """
import io, sys
standard = sys.stderr
sys.stderr = io.StringIO()
from ortoo.common.logs import log_event, logger as logs
log = logs.get_logger("planted")
logs.configure(level="info")
sys.stderr.close()
sys.stderr = standard
log.emit(log_event.error("still heard", "", ""))
"""


def test_a_log_outlives_the_standard_error_it_began_with() -> None:
    """A process that replaces and closes its standard error keeps its log, and a log line never raises."""
    done = subprocess.run([sys.executable, "-c", CLOSED], capture_output=True, text=True, check=True)
    assert "still heard" in done.stderr


UNPRINTABLE = """
from ortoo.common.logs import log_event, logger as logs
class Value:
    def __repr__(self):
        raise ValueError("no text")
log = logs.get_logger("planted")
log.emit(log_event.warning("by logging", "", ""), value=Value())
for as_json in (True, False):
    logs.configure(level="info", json=as_json)
    log.emit(log_event.info("by ourselves", "", ""), value=Value(), number=7)
    log.emit(log_event.info("by ourselves", "", ""), value={(1, 2): 3})
print(logs.dropped_line_count())
"""


def test_a_value_without_a_text_costs_the_values_of_its_line() -> None:
    """The event is still logged, with the kind of the error, and the caller gets no error."""
    done = subprocess.run([sys.executable, "-c", UNPRINTABLE], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
    assert done.stderr.count("by logging log_error='ValueError'") == 1
    lines = [line for line in done.stderr.splitlines() if "by ourselves" in line]
    assert ["log_error" in line for line in lines] == [True, True, True, False]


RAISING = """
import logging
from ortoo.common.logs import log_event, logger as logs
class Handler(logging.Handler):
    def emit(self, record):
        raise RuntimeError("a defect of the application")
logging.getLogger().addHandler(Handler())
logs.get_logger("planted").emit(log_event.warning("refused", "", ""))
print(logs.dropped_line_count())
"""


def test_a_handler_of_the_application_that_raises_ends_nothing_of_ours() -> None:
    """Code that handles messages logs meanwhile; a defect of a log handler must not affect the message."""
    done = subprocess.run([sys.executable, "-c", RAISING], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


STUCK = """
import os, sys, threading
reading, writing = os.pipe()
os.dup2(writing, 2)
from ortoo.common.logs import log_event, logger as logs
logs.configure(level="info")
log = logs.get_logger("planted")
written = 0
while not logs.dropped_line_count():
    log.emit(log_event.info("a line", "", ""), text="x" * 10_000)
    written += 1
os.close(writing)
def read():
    while chunk := os.read(reading, 1 << 20):
        os.write(1, chunk)
reader = threading.Thread(target=read)
reader.start()
for _ in range(2):  # the second time what it tells of the gap
    assert logs._writer().flush(60)
os.close(2)
reader.join()
print(written)
"""


def test_one_line_says_how_many_are_missing() -> None:
    """A reader that hung gets the number of missed lines when it reads again."""
    done = subprocess.run([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, text=True, check=True)
    *lines, count = done.stdout.splitlines()
    said = [json.loads(line) for line in lines]
    told = [line for line in said if line["event"] == "log_lines_dropped"]
    assert [(line["level"], line["component"], line["dropped"], line["dropped_total"]) for line in told] == [
        ("warning", "logs", 1, 1)
    ]
    assert len(said) == int(count), "all but one, and the line that reports it"
