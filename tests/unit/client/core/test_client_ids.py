"""The id of a client names its machine and its process."""

import os
import re
import socket

from ortoo.client.core.connection import Connection
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness


def connection(seed: int, client_id: str = "") -> Connection:
    """A connection that is not used."""
    return Connection(["localhost:1"], clock=SystemClock(), randomness=Randomness(seed), client_id=client_id)


def test_an_id_is_host_process_and_six_random_digits() -> None:
    """The page of alerts tells operators to find the process by it."""
    ids = {connection(seed).client_id for seed in range(3)}
    assert len(ids) == 3
    for one in ids:
        assert re.fullmatch(rf"{re.escape(socket.gethostname())}-{os.getpid()}-[0-9a-f]{{6}}", one)


def test_an_application_may_choose_its_id() -> None:
    """The chosen id has no additions; further clients of the same connection get ids of their own."""
    chosen = connection(1, "billing-0")
    assert chosen.client_id == "billing-0"
    assert chosen.new_client_id() != chosen.new_client_id()
