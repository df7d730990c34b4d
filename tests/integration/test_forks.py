"""A forked child of a process with a connection is refused at once, and the parent's calls continue."""

import subprocess
import sys
from pathlib import Path

import pytest

from ortoo.testing.pytest_broker import BlockingBroker

PROGRAM = """
import multiprocessing, os, sys
from ortoo.client import Conflict
from ortoo.client.blocking import connect

address, how = sys.argv[1:]

def child(parents, producer, told):
    for name, attempt in (
        ("send", lambda: producer.send(b"child")),
        ("admin", lambda: parents.admin.list_topics()),
        ("connect", lambda: connect(address).__enter__()),
    ):
        try:
            attempt()
        except Conflict as refused:
            print(name, refused, flush=True)
    told.wait()

def forked(target, *arguments):
    if how == "multiprocessing":
        started = multiprocessing.get_context("fork").Process(target=target, args=arguments)
        started.start()
        return lambda: started.join() or started.exitcode
    number = os.fork()
    if not number:
        target(*arguments)
        sys.exit(0)
    return lambda: os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])

with connect(address) as mq, mq.producer("orders") as producer:
    producer.send(b"before")
    told = multiprocessing.get_context("fork").Event()
    wait = forked(child, mq, producer, told)
    for _ in range(100):
        producer.send(b"while the child lives")
    told.set()
    print("child ended with", wait(), flush=True)
    producer.send(b"after")
"""
IN_A_LOOP = """
import asyncio, os, sys
from ortoo.client import Conflict, connect

async def main():
    async with connect(sys.argv[1]) as mq, mq.producer("orders") as producer:
        producer.enqueue_nowait(b"parent")
        number = os.fork()
        if not number:
            try:
                producer.enqueue_nowait(b"child")
            except Conflict as refused:
                print("enqueue", refused, flush=True)
            os._exit(0)
        print("child ended with", os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]), flush=True)

asyncio.run(main())
"""
IMPORTING = """
import os, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            print(os.environ.get("GRPC_ENABLE_FORK_SUPPORT"), os.environ.get("GRPC_VERBOSITY"))

for name in ("GRPC_ENABLE_FORK_SUPPORT", "GRPC_VERBOSITY"):
    os.environ.pop(name, None)
sys.meta_path.insert(0, Watch())
exec(sys.argv[1])
"""
SPAWNING = """
import multiprocessing, sys
from ortoo.client.blocking import connect

def send(address):
    with connect(address) as mq, mq.producer("orders") as producer:
        producer.send(b"x")

if __name__ == "__main__":
    send(sys.argv[1])
    child = multiprocessing.get_context("spawn").Process(target=send, args=sys.argv[1:])
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""


@pytest.mark.parametrize("how", ["os.fork", "multiprocessing"])
def test_a_forked_child_is_refused_by_name_and_the_parent_sends_on(blocking_broker: BlockingBroker, how: str) -> None:
    """Before, the child hung or crashed, and the parent's calls stopped while the child lived."""
    assert refused(blocking_broker, PROGRAM, how) == ["send", "admin", "connect"]


def test_a_child_forked_inside_a_loop_is_refused_by_name(blocking_broker: BlockingBroker) -> None:
    """The child has a copy of the loop, which seems to run, and of the open batch, which would never be sent."""
    assert refused(blocking_broker, IN_A_LOOP) == ["enqueue"]


def refused(broker: BlockingBroker, program: str, *arguments: str) -> list[str]:
    """The calls of the child that were refused, in a program that forks."""
    port = broker.port()
    broker.create_topic("orders")
    command = [sys.executable, "-c", program, f"localhost:{port}", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    *refusals, last = ended.stdout.splitlines()
    assert all("Connect for the first time after the fork" in line for line in refusals), ended.stdout + ended.stderr
    assert last == "child ended with 0"
    return [line.split()[0] for line in refusals]


def test_a_child_forked_before_the_first_connection_connects(blocking_broker: BlockingBroker) -> None:
    """As workers of gunicorn without --preload and of Celery do."""
    port = blocking_broker.port()
    blocking_broker.create_topic("orders")
    program = """
import os, sys
from ortoo.client.blocking import connect

number = os.fork()
with connect(sys.argv[1]) as mq, mq.producer("orders") as producer:
    producer.send(b"x")
if not number:
    sys.exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]))
"""
    command = [sys.executable, "-c", program, f"localhost:{port}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_spawned_child_of_a_connected_parent_connects(blocking_broker: BlockingBroker, tmp_path: Path) -> None:
    """`multiprocessing` with the method spawn, as the page on programs says."""
    port = blocking_broker.port()
    blocking_broker.create_topic("orders")
    program = tmp_path / "program.py"
    program.write_text(SPAWNING)
    command = [sys.executable, str(program), f"localhost:{port}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    "statement",
    [
        "from ortoo.client import connect",
        "from ortoo.client.blocking import connect",
        "from ortoo.common.grpc.channels import Channels",
        "from ortoo.enode.app import open_enode",
    ],
)
def test_options_of_grpc_are_set_before_it_is_imported(statement: str) -> None:
    """It reads them at its import: whether it takes part in forks, and whether it logs each failed handshake."""
    command = [sys.executable, "-c", IMPORTING, statement]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == "0 ERROR\n"
