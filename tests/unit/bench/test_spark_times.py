"""The processor time of a Spark session counts workers that ended."""

import subprocess
import sys

from bench import processes
from bench.spark_times import SparkTimes

JVM = """
import subprocess, sys
daemon = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for line in sys.stdin.buffer:
    daemon.stdin.write(line)
    daemon.stdin.flush()
    sys.stdout.buffer.write(daemon.stdout.readline())
    sys.stdout.buffer.flush()
"""
"""Starts a daemon and passes each line to it, as the JVM of a session does."""
DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as pyspark.daemon does
worker = 0
for line in sys.stdin.buffer:
    if worker:
        os.kill(worker, signal.SIGKILL)
        while os.path.exists(f"/proc/{worker}"):
            time.sleep(0.01)
    else:
        done, ready = os.pipe()
        worker = os.fork()
        if not worker:
            while time.process_time() < 0.3:
                pass
            os.write(ready, b".")
            signal.pause()
        os.read(done, 1)
    sys.stdout.buffer.write(b"done\\n")
    sys.stdout.buffer.flush()
"""
"""Starts a worker that needs 0.3 s at the first line, and kills it at the second."""


def test_a_worker_that_ended_keeps_its_time() -> None:
    """The sum does not fall when the daemon ends an idle worker, although the kernel has forgotten its time."""
    with subprocess.Popen(
        [sys.executable, "-c", JVM, DAEMON], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as jvm:
        assert jvm.stdin is not None
        assert jvm.stdout is not None
        times = SparkTimes(jvm.pid)
        jvm.stdin.write(b"start\n")
        jvm.stdout.readline()
        working = times.read()
        assert len(list(processes.descendants(jvm.pid))) == 2
        jvm.stdin.write(b"end\n")
        jvm.stdout.readline()
        assert len(list(processes.descendants(jvm.pid))) == 1
        ended = times.read()
        jvm.stdin.close()
    assert working["python_s"] >= 0.25
    assert ended["python_s"] >= working["python_s"]
