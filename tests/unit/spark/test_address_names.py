"""A new query refuses an address whose name does not exist, and waits for everything that may come back."""

import socket
from typing import Any

import pytest

from ortoo.common.errors import Invalid
from ortoo.spark.core.cluster_options import ClusterOptions, check_names

FAILURES = {"missing": socket.EAI_NONAME, "dns-away": socket.EAI_AGAIN}


def resolve(host: str, port: int, **kind: Any) -> list[Any]:
    """Fails as the name of the host says."""
    if host in FAILURES:
        raise socket.gaierror(FAILURES[host], "no")
    return []


@pytest.mark.parametrize("addresses", [("missing:8081",), ("missing:8081", "missing:8082")])
def test_names_that_do_not_exist_are_refused(addresses: tuple[str, ...]) -> None:
    """The error has the name and the option."""
    with pytest.raises(Invalid, match="the name missing does not exist; check the spelling") as refused:
        check_names(ClusterOptions(addresses), resolve)
    assert refused.value.field == "address"


@pytest.mark.parametrize("addresses", [("here:1",), ("missing:1", "here:1"), ("dns-away:1",), ("[::1]:1",)])
def test_names_that_exist_or_may_come_back_are_waited_for(addresses: tuple[str, ...]) -> None:
    """One of several addresses is enough, and a DNS server that does not answer is no answer."""
    check_names(ClusterOptions(addresses), resolve)


def test_a_proxy_resolves_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name may be known to the proxy alone."""
    for name in ("no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("grpc_proxy", "http://proxy:3128")
    check_names(ClusterOptions(("missing:1",)), resolve)
