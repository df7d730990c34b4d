"""The settings of a snode."""

import pytest

from ortoo.common.errors import Invalid
from ortoo.snode.settings import SnodeSettings, load


def test_defaults_are_the_documented_ports() -> None:
    """Without settings a snode serves on 8081 and uses the name server on 8071."""
    settings = load({}).settings
    assert (settings.listen_address, settings.namesrv_address) == ("127.0.0.1:8081", "127.0.0.1:8071")
    assert settings == SnodeSettings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LISTEN_ADDRESS", "8081"),
        ("ADVERTISED_ADDRESS", "host:0"),
        ("NAMESRV_ADDRESS", "nowhere"),
        ("NAME", "a b"),
        ("ENODE_TIMEOUT_MS", "0"),
        ("ENODE_IN_FLIGHT_BYTES", "1"),
        ("SESSION_EXPIRY_S", "-1"),
        ("LOG_LEVEL", "loud"),
    ],
)
def test_what_cannot_work_is_refused_by_name(name: str, value: str) -> None:
    """The error names the setting."""
    with pytest.raises(Invalid) as refused:
        load({f"ORTOO_SNODE_{name}": value})
    assert name.lower() in str(refused.value)


def test_an_unknown_setting_gets_a_suggestion() -> None:
    """A typing error is an error."""
    with pytest.raises(Invalid, match="did you mean ORTOO_SNODE_ENODE_TIMEOUT_MS"):
        load({"ORTOO_SNODE_ENODE_TIMEOUT": "5"})
