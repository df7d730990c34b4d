"""The limits of streams of health and reflection."""

from typing import Any, cast

import pytest

from ortoo.common.errors import Overloaded
from ortoo.common.grpc.layers.arrival import ARRIVAL, Arrival
from ortoo.common.grpc.layers.layer import Method, ServedCall
from ortoo.common.grpc.layers.observers import OBSERVERS_OF_ADDRESS_MAX, Observers

WATCH = Method(
    "/grpc.health.v1.Health/Watch", "Watch", is_request_stream=False, is_response_stream=True, read=bytes, write=bytes
)


class Context:
    """The context of a call from an address."""

    def __init__(self, address: str) -> None:
        self._address = address

    def peer(self) -> str:
        """The name of the peer, as gRPC spells it."""
        return f"ipv4:{self._address}:4711"


def opened(observers: Observers, address: str) -> Arrival:
    """A stream from this address. Errors: Overloaded."""
    arrival = Arrival("Watch", (), is_observer=True, gives_many=True)
    observers.arrive(arrival)
    token = ARRIVAL.set(arrival)
    try:
        observers.enter(ServedCall(WATCH, b"", cast("Any", Context(address))))
    finally:
        ARRIVAL.reset(token)
    return arrival


def test_an_address_whose_streams_have_ended_is_forgotten() -> None:
    """Otherwise clients without credentials could fill the memory, from one address after the other."""
    observers = Observers()
    for number in range(1_000):
        opened(observers, f"10.0.{number // 256}.{number % 256}").on_released()
    assert [*filter(None, vars(observers).values())] == []


def test_an_address_has_a_limit_of_open_streams() -> None:
    """Streams that have ended, and those of other addresses, do not count."""
    observers = Observers()
    opened(observers, "10.0.0.2")
    streams = [opened(observers, "10.0.0.1") for _ in range(OBSERVERS_OF_ADDRESS_MAX)]
    with pytest.raises(Overloaded, match=r"are open from 10\.0\.0\.1"):
        opened(observers, "10.0.0.1")
    streams.pop().on_released()
    opened(observers, "10.0.0.1")
