"""A list of equal name servers."""

import pytest

from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.errors import Invalid


def test_failed_one_is_passed_over_once() -> None:
    """Several callers that saw the same failure switch once, not twice; after the last comes the first."""
    servers = NameServers("a:1; b:2;")
    assert servers.current == "a:1"
    servers.next_after("a:1")
    servers.next_after("a:1")
    assert servers.current == "b:2"
    servers.next_after("b:2")
    assert servers.current == "a:1"


@pytest.mark.parametrize(
    "wrong", ["", ";", "host", ":1", "host:", "host:x", "host:0", "host:99999", "a:1;b", "::1:8071", "[::1:80"]
)
def test_malformed_list_is_refused(wrong: str) -> None:
    """A text that is not host:port is refused with the field and the expected form (E-006)."""
    with pytest.raises(Invalid, match="host:port") as caught:
        NameServers(wrong)
    assert caught.value.field == "namesrv_address"
