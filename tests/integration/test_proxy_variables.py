"""Proxy variables in the environment of a client."""

import pytest

from ortoo.client import Admin, Unavailable
from ortoo.client.blocking import connect
from ortoo.client.core.connection import Connection
from ortoo.common.cluster.addresses import PROXY_VARIABLES, proxy_variable
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.testing.pytest_broker import BlockingBroker
from ortoo.verification.servers.ports import free_address


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> str:
    """A proxy that refuses connections, in the environment."""
    address = f"http://{free_address()}"
    for name in (*PROXY_VARIABLES, "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", address)
    return address


def test_a_client_reaches_the_loopback_beside_a_proxy(blocking_broker: BlockingBroker, proxy: str) -> None:
    """A proxy could not reach it, so `ortoo dev` was never ready on machines with http_proxy."""
    port = blocking_broker.port()
    with connect(f"127.0.0.1:{port}") as mq:
        mq.admin.create_topic("orders")
    with connect(f"localhost:{port}") as mq:
        assert [topic.name for topic in mq.admin.list_topics()] == ["orders"]


async def test_the_error_of_an_unreachable_snode_names_the_variable_of_the_proxy(proxy: str) -> None:
    """The proxy may be the reason; its address, which may have a password, is not shown by this library."""
    connection = Connection(["192.0.2.1:8081"], clock=SystemClock(), randomness=Randomness(1), attempts_max=1)
    async with connection:
        with pytest.raises(Unavailable, match="the proxy of the environment variable http_proxy: unset it"):
            await Admin(connection).list_topics()


@pytest.mark.parametrize(
    ("address", "environ", "variable"),
    [
        ("mq.example:8081", {}, ""),
        ("mq.example:8081", {"http_proxy": "http://p:1"}, "http_proxy"),
        ("mq.example:8081", {"http_proxy": "http://p:1", "https_proxy": "http://p:2"}, "https_proxy"),
        ("mq.example:8081", {"http_proxy": "http://p:1", "no_proxy": "other, .example"}, ""),
        ("mq.example:8081", {"http_proxy": "http://p:1", "no_grpc_proxy": "other"}, "http_proxy"),
        ("localhost:8081", {"http_proxy": "http://p:1"}, ""),
        ("[::1]:8081", {"http_proxy": "http://p:1"}, ""),
    ],
)
def test_the_variable_is_that_which_grpc_obeys(address: str, environ: dict[str, str], variable: str) -> None:
    """The first one that is set, except for hosts of no_proxy and the loopback."""
    assert proxy_variable(address, environ) == variable
