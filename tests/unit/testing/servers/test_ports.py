"""Ports of what listens in tests."""

import multiprocessing
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.queues import Queue
from pathlib import Path

from ortoo.verification.servers.ports import free_address_of_two, free_ports

COUNT = 300


def some(found: "Queue[list[int]]", over: "Queue[None]") -> None:
    """Take ports, and keep them until it is said."""
    found.put(free_ports(COUNT))
    over.get()


@contextmanager
def held(port: int) -> Iterator[None]:
    """Listen at the port, unless another process does so already."""
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
        yield


def test_no_two_processes_are_given_the_same_port() -> None:
    """For as long as they live, whether or not anybody listens there."""
    context = multiprocessing.get_context("spawn")
    found: Queue[list[int]] = context.Queue()
    over: Queue[None] = context.Queue()
    others = [context.Process(target=some, args=(found, over)) for _ in range(2)]
    for one in others:
        one.start()
    ports = free_ports(COUNT)
    for _ in others:
        ports += found.get(timeout=60)
    for _ in others:
        over.put(None)
    for one in others:
        one.join()
    assert len(set(ports)) == 3 * COUNT


def test_a_port_is_none_that_the_system_hands_out() -> None:
    """A call to a stopped server reaches no other process, such as a JVM that waits for its worker."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert all(not first <= port <= last for port in free_ports(10))


def test_somebody_elses_port_is_passed_over() -> None:
    """Whatever holds it."""
    [port] = free_ports(1)
    with held(port + 1):
        assert port + 1 not in free_ports(3)


def test_who_needs_two_ports_side_by_side_has_both() -> None:
    """`ortoo dev` takes the next one for TLS: it was given to another process, whose server then found it taken."""
    [before] = free_ports(1)
    with held(before + 2):  # one of two that would be next
        port = int(free_address_of_two().rpartition(":")[2])
    assert {port, port + 1}.isdisjoint({before + 2, *free_ports(5)})
