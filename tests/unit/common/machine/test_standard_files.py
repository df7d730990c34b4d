"""The standard files of real processes: closed, full, without a reader, and with one that hangs."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

OPEN = """
import os, sys
from ortoo.common.machine.standard_files import open_missing_standard_files
open_missing_standard_files()
report = os.open(sys.argv[1], os.O_WRONLY)
sys.stdout.write("goes nowhere")
sys.stdout.flush()
sys.stderr.write("goes nowhere")
print(sys.stdin.read(), report, *(os.readlink(f"/proc/self/fd/{n}") for n in range(3)), file=open(report, "w"))
"""
CLOSE = "import os, sys\nos.closerange(0, 3)\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])"


def test_nothing_becomes_a_standard_file_that_was_closed() -> None:
    """Where all three are closed, the first file that is opened gets another number, and writing to them works."""
    reading, writing = os.pipe()
    target = f"/proc/{os.getpid()}/fd/{writing}"
    subprocess.run([sys.executable, "-c", CLOSE, "-c", OPEN, target], check=True)
    os.close(writing)
    with os.fdopen(reading) as report:
        assert report.read().split() == ["3", "/dev/null", "/dev/null", "/dev/null"]


OWN = """
import logging, os, sys, threading, warnings
from ortoo.common.logs import log_event, logger as logs
logs.configure(level="info")
logs.log_standard_error()
more = "x" * int(sys.argv[2])
for _ in range(int(sys.argv[1])):
    logs.get_logger("planted").emit(log_event.info("a line of the log", "", ""), more=more)
    logging.getLogger("library").warning("a line of a library" + more)
    warnings.warn("a warning" + more, stacklevel=1)
    print("a line of an interceptor", more, file=sys.stderr)
    thread = threading.Thread(target=lambda: 1 / 0, name="planted")
    thread.start()
    thread.join()
os.write(1, b"dropped %d\\n" % logs.dropped_line_count())
raise RuntimeError("the end")
"""
SAID = ("a line of the log", "a line of a library", "a warning", "a line of an interceptor", "ZeroDivisionError")


def test_what_python_says_for_itself_goes_the_way_of_the_log() -> None:
    """Lines of libraries, warnings, tracebacks of threads and of the end of the process are all written."""
    done = subprocess.run([sys.executable, "-c", OWN, "1", "0"], capture_output=True, text=True, check=False)
    assert [words for words in (*SAID, "RuntimeError: the end") if words not in done.stderr] == []
    assert (done.returncode, done.stdout) == (1, "dropped 0\n")


@pytest.mark.parametrize("reader", ["hangs", "gone", "full", "closed"])
def test_nothing_waits_for_the_reader_of_standard_error(reader: str) -> None:
    """The process does its work, drops and counts lines, and ends with its own exit code."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    if reader == "gone":
        os.close(reading)
    full = os.open("/dev/full", os.O_WRONLY)
    words = [sys.executable, "-c", OWN, "300", "5000"]
    if reader == "closed":
        words = [sys.executable, "-c", CLOSE.replace("(0, 3)", "(2, 3)"), *words[1:]]
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=full if reader == "full" else writing, text=True, check=False
    )
    assert done.returncode == 1
    assert int(done.stdout.split()[1]) > 300
    for descriptor in (writing, full, *((reading,) if reader != "gone" else ())):
        os.close(descriptor)


LIBRARY = """
import os, sys
from ortoo.common.logs import log_event, logger as logs
logs.configure(level="info")
logs.log_standard_error()
print(os.get_blocking(2))
for _ in range(100):
    try:
        os.write(2, b"x" * 1000)  # as a library in C does
    except BlockingIOError:
        print("refused")
        break
"""


@pytest.mark.parametrize("opened", [os.pipe, os.openpty])
def test_a_library_in_c_does_not_wait_either_and_nobody_else_is_changed(opened: Callable[[], tuple[int, int]]) -> None:
    """The process opens a pipe or a terminal again as non-blocking. Other processes that share it still block."""
    reading, writing = opened()
    done = subprocess.run(
        [sys.executable, "-c", LIBRARY], stdout=subprocess.PIPE, stderr=writing, text=True, check=True
    )
    assert done.stdout.split() == ["False", "refused"]
    assert os.get_blocking(writing)
    os.close(reading)
    os.close(writing)


CHILD = """
import asyncio, os, sys
import uvloop
from ortoo.common.machine.standard_files import inherited_standard_error
from ortoo.common.logs import log_event, logger as logs
logs.log_standard_error()

async def main():
    program = "import os, sys; print('a child', os.get_blocking(2), file=sys.stderr)"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stderr=inherited_standard_error())
    await child.wait()

asyncio.Runner(loop_factory=uvloop.new_event_loop).run(main())
print(os.get_blocking(2), file=sys.stderr)
"""


def test_a_child_gets_standard_error_as_its_parent_did() -> None:
    """A child that is not one of our processes may wait for the reader; starting it does not affect its parent."""
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["a child True", "False"]


PRINTING = """
import sys
from ortoo.common.process import entry_point
sys.exit(entry_point.run_command(lambda: print("x" * int(sys.argv[1])) or 5))
"""


@pytest.mark.parametrize("size", ["10", "100000"], ids=["at the end", "while it runs"])
def test_a_command_whose_output_is_not_read_ends_quietly(size: str) -> None:
    """Its exit code is the one of a shell for SIGPIPE; a command that cannot write prints one error."""
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-c", PRINTING, size]
    done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")
    os.close(writing)
    with open("/dev/full", "w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode in (1, 5)
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith(": No space left on device\n")
    assert done.stderr.count("\n") == 1
