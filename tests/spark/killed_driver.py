"""A driver of Spark that tests kill, with its JVM and its Python workers."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import processes
from tests.repo.tree import ROOT

WRONG = 3
"""Exit code of a driver that found wrong content, which no kill excuses."""


class Driver:
    """One run of the queries, in a process that can be killed."""

    def __init__(self, module: str, arguments: Sequence[str], folder: Path, *, held: bool = False) -> None:
        """Start `module`, and wait for its first line, which it prints when a query runs. Its log is in `folder`.

        A `held` driver waits with its session for `release`, so that it can follow a killed driver at once. Its module
        has to read a line first.
        """
        self.log = (folder / "driver.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            start_new_session=True,
            text=True,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        )
        self.started = False
        self.hurt = False
        """Whether it lost a worker, after which it may fail if it lost many."""
        if not held:
            self.release()

    def release(self) -> None:
        """Let a held driver run its queries, and wait until one runs."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        self.started = self.process.stdout.readline().strip() == "started"

    def ends_within(self, seconds: float) -> int | None:
        """Its exit code, or None if it still runs after `seconds`."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._close()
        return code

    def kill(self) -> None:
        """Kill the driver and its JVM with SIGKILL; its workers notice and exit."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._close()

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # it did not read the line
                pipe.close()
        self.log.close()

    def said(self) -> str:
        """The end of its log."""
        return Path(self.log.name).read_text()[-3000:]

    def worker_ids(self) -> list[int]:
        """The Python workers of its JVM: those that run tasks, fork workers, or plan queries."""
        return [pid for pid in processes.descendants(self.process.pid) if b" -m pyspark" in _command(pid)]


def _command(process_id: int) -> bytes:
    try:
        return Path(f"/proc/{process_id}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""
