"""The check of an address."""

import pytest

from ortoo.client.admin.address_check import check_reachable


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_an_ip_address_is_never_an_unknown_host(host: str) -> None:
    """It needs no resolver, so that no machine is too slow to resolve it."""
    assert (await check_reachable(f"{host}:1", {}, timeout_factor=0)).resolves
