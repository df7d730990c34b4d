"""SIGTERM and Ctrl-C: running handlers finish, other messages are released, and a second signal ends the process."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from ortoo.client.blocking import connect
from ortoo.testing.pytest_broker import BlockingBroker

HANDLER = """
import asyncio, signal, sys
from ortoo.client import App, PopSettings, PullSettings, ConsumerSettings
from ortoo.client.blocking import connect

address, kind, finish_timeout_s, ignored = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
# The shell that runs the tests may ignore SIGINT, and programs inherit this.
signal.signal(signal.SIGINT, signal.SIG_IGN if ignored == "True" else signal.default_int_handler)

def handle(message):
    print("begun", flush=True)
    sys.stdin.readline()
    print("done", flush=True)

if kind in ("program", "threads"):
    app = App("g")

    async def handle_body(body: bytes) -> None:
        await asyncio.to_thread(handle, body)

    def handle_in_thread(body: bytes) -> None:
        handle(body)

    app.consumer("orders", concurrency=1)(handle_body if kind == "program" else handle_in_thread)
    app.run(address, finish_timeout_s=finish_timeout_s)
else:
    with connect(address) as mq:
        if kind == "pop":
            consumer = mq.pop_consumer("g", "orders")
        elif kind == "push":
            consumer = mq.consumer("g", "orders", ConsumerSettings(from_beginning=True))
        else:
            consumer = mq.pull_consumer("g", "orders", PullSettings(from_beginning=True))
        with consumer:
            if kind == "pull-in-order":
                consumer.run_in_order(handle)
            else:
                consumer.run(handle)
"""
"""A program whose handler waits for a line of the test."""
ENDS = {
    "program": (0, 0),
    "threads": (0, 0),
    "pop": (128 + signal.SIGTERM, -signal.SIGINT),
    "push": (128 + signal.SIGTERM, -signal.SIGINT),
    "pull-in-order": (128 + signal.SIGTERM, -signal.SIGINT),
}
"""The exit statuses after SIGTERM and after Ctrl-C. Python ends by SIGINT after a KeyboardInterrupt."""


class Program:
    """A program that runs."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self.stdin: IO[str] = process.stdin
        self.stdout: IO[str] = process.stdout

    def let_the_handler_return(self) -> None:
        """Send it its line."""
        self.stdin.write("\n")
        self.stdin.flush()


@contextmanager
def running(
    address: str, kind: str, finish_timeout_s: float = 30.0, *, sigint_ignored: bool = False
) -> Iterator[Program]:
    """The program, when its handler has begun the first message."""
    arguments = [sys.executable, "-c", HANDLER, address, kind, str(finish_timeout_s), str(sigint_ignored)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            program = Program(process)
            assert program.stdout.readline() == "begun\n"
            yield program
        finally:
            process.kill()


@pytest.fixture
def address(blocking_broker: BlockingBroker) -> str:
    """A broker in real time with one message."""
    blocking_broker.port()
    with connect(blocking_broker.address) as mq:
        mq.admin.create_topic("orders", queue_count=1)
    blocking_broker.send("orders", b"one")
    return blocking_broker.address


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", ENDS)
def test_a_running_handler_finishes_and_its_message_is_acknowledged(
    address: str, kind: str, number: signal.Signals
) -> None:
    """Before, the handler was cancelled, or the process ended at once."""
    with running(address, kind) as program:
        program.process.send_signal(number)
        program.let_the_handler_return()
        assert program.process.wait(60) == ENDS[kind][number == signal.SIGINT]
        assert program.stdout.read() == "done\n"
    with connect(address) as mq:
        assert mq.admin.describe_lag("g", "orders").lag_messages == 0


@pytest.mark.parametrize("kind", ENDS)
def test_a_program_in_the_background_stops_gracefully(address: str, kind: str) -> None:
    """A shell starts it with SIGINT ignored. SIGTERM then ended the process at once."""
    with running(address, kind, sigint_ignored=True) as program:
        program.process.send_signal(signal.SIGTERM)
        program.let_the_handler_return()
        assert program.process.wait(60) == ENDS[kind][0]
        assert program.stdout.read() == "done\n"


@pytest.mark.parametrize("kind", ["program", "threads"])
def test_a_handler_that_does_not_finish_in_time_loses_its_message_without_an_attempt(address: str, kind: str) -> None:
    """Another worker gets it at once, also if the handler occupies a thread that never ends."""
    with running(address, kind, finish_timeout_s=0.2) as program:
        program.process.terminate()
        with connect(address) as mq, mq.pop_consumer("g", "orders") as consumer:
            [message] = consumer.pop(wait_ms=60_000)
            assert message.attempt == 1
            consumer.ack(message)
        if kind == "threads":  # the thread of the other program is one of asyncio, which waits for it at its end
            assert program.process.wait(60) == 0


@pytest.mark.parametrize("kind", ENDS)
def test_the_second_signal_ends_the_process_at_once(address: str, kind: str) -> None:
    """Whatever its handler does."""
    with running(address, kind) as program:
        program.process.terminate()
        while program.process.poll() is None:  # two signals in one moment would be one
            program.process.terminate()
        assert program.process.returncode == -signal.SIGTERM
