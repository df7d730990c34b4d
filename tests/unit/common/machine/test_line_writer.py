"""Lines through real pipes and files, with readers that hang, disconnect or are slow."""

import contextlib
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ortoo.common.machine.line_writer import LINE_OVERHEAD_BYTES, WRITE_BYTES_MAX, LineWriter

PIPE_BYTES = 4096
"""The smallest pipe of Linux."""
FLUSH_S = 20.0


class Pipe:
    """A pipe with a small buffer."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def close_reader(self) -> None:
        os.close(self.reading)
        self.reading = -1

    def everything(self, writer: LineWriter) -> list[str]:
        """All lines that a writer has written and still writes."""
        chunks: list[bytes] = []

        def read() -> None:
            while chunk := os.read(self.reading, 1 << 20):
                chunks.append(chunk)

        reader = threading.Thread(target=read)
        reader.start()
        assert writer.flush(FLUSH_S)
        assert writer.flush(FLUSH_S), "the line about a gap is written as well"
        os.close(self.writing)
        self.writing = -1
        reader.join()
        return b"".join(chunks).decode().splitlines()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A pipe without a reader yet."""
    found = Pipe()
    yield found
    for descriptor in (found.reading, found.writing):
        with contextlib.suppress(OSError):
            os.close(descriptor)


def test_lines_are_written_whole_and_in_order(pipe: Pipe) -> None:
    """Short and long lines of one thread keep their order."""
    writer = LineWriter(pipe.writing)
    given = [f"{n} " + "x" * (n * 37 % 700 if n % 50 else 3 * PIPE_BYTES) for n in range(300)]
    for line in given:
        writer.write(line)
    assert pipe.everything(writer) == given
    assert writer.dropped == 0


def test_a_line_of_any_text_is_written(pipe: Pipe) -> None:
    """Characters that UTF-8 cannot encode are escaped."""
    writer = LineWriter(pipe.writing)
    writer.write("half of a pair: \ud800, é")
    assert pipe.everything(writer) == ["half of a pair: \\ud800, é"]


def test_a_reader_that_hangs_costs_lines_and_nothing_else(pipe: Pipe) -> None:
    """The caller continues; each line is written or counted, and gaps are reported when the reader is back."""
    gaps: list[int] = []
    writer = LineWriter(pipe.writing, on_gap=gaps.append, waiting_bytes_max=64 << 10)
    for n in range(3000):
        writer.write(f"{n:100}")
    assert writer.dropped > 0
    said = [int(line) for line in pipe.everything(writer)]
    assert said == sorted(set(said))
    assert len(said) + writer.dropped == 3000
    assert sum(gaps) == writer.dropped


def test_a_full_queue_takes_lines_again_once_half_of_it_is_written(pipe: Pipe) -> None:
    """A slow reader gets long sequences of lines with few gaps, not single lines."""
    gaps: list[int] = []
    room = 64 << 10
    writer = LineWriter(pipe.writing, on_gap=gaps.append, waiting_bytes_max=room)
    line = "x" * 191
    cost = len(line) + 1 + LINE_OVERHEAD_BYTES
    while not writer.dropped:
        writer.write(line)
    before = writer.dropped
    first = os.read(pipe.reading, PIPE_BYTES)
    writer.write(line)
    assert writer.dropped == before + 1, "one write of the thread made room, but not half of the queue is written"
    said = first.decode().splitlines() + pipe.everything(writer)
    assert gaps == [writer.dropped]
    assert len(said) >= room // cost


def test_a_line_longer_than_the_queue_is_written(pipe: Pipe) -> None:
    """A long traceback is dropped only while others wait."""
    writer = LineWriter(pipe.writing, waiting_bytes_max=1000)
    writer.write("x" * 5000)
    assert pipe.everything(writer) == ["x" * 5000]


def test_a_reader_that_went_away_costs_lines_and_nothing_else(pipe: Pipe) -> None:
    """EPIPE is counted for each line."""
    writer = LineWriter(pipe.writing)
    pipe.close_reader()
    for n in range(100):
        writer.write(f"line {n}")
    assert writer.flush(FLUSH_S)
    assert writer.dropped == 100


@pytest.mark.parametrize("descriptor", [-1, None], ids=["EBADF", "ENOSPC"])
def test_a_descriptor_that_refuses_costs_lines_and_nothing_else(descriptor: int | None) -> None:
    """A closed file and a full device."""
    number = os.open("/dev/full", os.O_WRONLY) if descriptor is None else descriptor
    writer = LineWriter(number)
    for n in range(100):
        writer.write(f"line {n}")
    assert writer.flush(FLUSH_S)
    assert writer.dropped == 100
    if descriptor is None:
        os.close(number)


def test_a_pipe_that_another_process_made_non_blocking_loses_nothing(pipe: Pipe) -> None:
    """The thread waits after EAGAIN: any process that shares a pipe may set O_NONBLOCK for all of them."""
    os.set_blocking(pipe.writing, False)
    writer = LineWriter(pipe.writing)
    given = [f"line {n} " + "x" * 300 for n in range(500)] + ["y" * 3 * PIPE_BYTES]
    for line in given:
        writer.write(line)
    assert pipe.everything(writer) == given
    assert writer.dropped == 0


def test_what_follows_a_torn_line_begins_a_line(tmp_path: Path) -> None:
    """After a reader left in the middle of a line, the next reader gets whole lines and the report of the gap."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    first = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(fifo, os.O_WRONLY)
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    gaps: list[int] = []
    writer = LineWriter(writing, on_gap=gaps.append)
    writer.write("x" * 3 * PIPE_BYTES)
    while not fcntl.ioctl(first, 0x541B, b"\0" * 4).startswith(PIPE_BYTES.to_bytes(4, sys.byteorder)):
        pass  # FIONREAD: until the pipe is full
    os.close(first)
    assert writer.flush(FLUSH_S)
    assert writer.dropped == 1
    second = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    said = os.read(second, 2 * PIPE_BYTES)
    writer.write("next")
    assert writer.flush(FLUSH_S)
    said += os.read(second, 2 * PIPE_BYTES)
    assert said.splitlines()[-1] == b"next"
    assert set(said.splitlines()[0]) == {ord("x")}
    assert gaps == [1]
    for descriptor in (second, writing):
        os.close(descriptor)


def test_a_finalizer_may_log_while_a_line_is_queued(pipe: Pipe) -> None:
    """The collector may run anywhere, and a finalizer that logs must not wait for the line that it interrupted."""

    class Interrupted(LineWriter):
        def _add(self, item: bytes | threading.Event) -> None:
            if item == b"outer\n":
                self.write("inner")
            super()._add(item)

    writer = Interrupted(pipe.writing)
    writer.write("outer")
    assert pipe.everything(writer) == ["inner", "outer"]


def test_many_threads_lose_no_line(pipe: Pipe) -> None:
    """Each thread's lines are whole and in its order."""
    writer = LineWriter(pipe.writing)

    def say(name: int) -> None:
        for n in range(200):
            writer.write(f"{name} {n}")

    threads = [threading.Thread(target=say, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = pipe.everything(writer)
    for name in range(8):
        own = [line for line in said if line.startswith(f"{name} ")]
        assert own == [f"{name} {n}" for n in range(200)]


def test_lines_fit_into_one_write() -> None:
    """Processes that share a pipe mix whole lines, never parts of them."""
    assert os.pathconf("/dev/null", "PC_PIPE_BUF") >= WRITE_BYTES_MAX


FORKED = """
import os, sys
from ortoo.common.machine.line_writer import LineWriter
writer = LineWriter(2)
writer.write("parent")
writer.flush()
if os.fork() == 0:
    writer.write("child")
    sys.exit()
os.wait()
writer.write("again")
"""


def test_a_forked_child_writes_its_own_lines() -> None:
    """A fork does not copy the thread; the child starts its own, and each line is written once."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True)
    assert done.stderr.split() == ["parent", "child", "again"]


HANGING = """
import os, sys
from ortoo.common.machine.line_writer import LineWriter
reading, writing = os.pipe()
writer = LineWriter(writing)
while not writer.dropped:
    writer.write("x" * 1000)
sys.exit(7)
"""


def test_a_thread_that_hangs_does_not_hold_up_the_end() -> None:
    """The process ends with its own exit code, without an error of the thread."""
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (7, "")
