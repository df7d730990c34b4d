"""The settings of the console are checked at the start."""

import pytest

from ortoo.common.errors import Invalid
from ortoo.console.settings import load


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"SNODE_ADDRESS": "http://snode"}, "snode_address"),
        ({"SNODE_ADDRESS": ""}, "snode_address"),
        ({"LISTEN_ADDRESS": "8088"}, "listen_address"),
        ({"HTTPS_KEY_FILE": "key.pem"}, "https_certificate_file"),
        ({"TLS_CERTIFICATE_FILE": "a.pem"}, "tls_key_file"),
        ({"TLS_CERTIFICATE_FILE": "a.pem", "TLS_KEY_FILE": "b.pem"}, "tls_ca_file"),
        ({"SESSIONS_MAX": "0"}, "sessions_max"),
        ({"LOG_LEVEL": "loud"}, "log_level"),
    ],
)
def test_settings_that_cannot_work_are_refused(values: dict[str, str], field: str) -> None:
    """The error names the setting."""
    with pytest.raises(Invalid) as caught:
        load({f"ORTOO_CONSOLE_{name}": value for name, value in values.items()})
    assert caught.value.field == field


def test_a_local_console_answers_to_local_names_alone() -> None:
    """Elsewhere every name is allowed unless names are listed."""
    assert load({}).settings.hosts == ("localhost", "127.0.0.1", "[::1]")
    assert load({"ORTOO_CONSOLE_LISTEN_ADDRESS": "0.0.0.0:8088"}).settings.hosts == ()
    assert load({"ORTOO_CONSOLE_ALLOWED_HOSTS": "a.example,b.example"}).settings.hosts == ("a.example", "b.example")
    several = load({"ORTOO_CONSOLE_SNODE_ADDRESS": "a:1; b:2"}).settings
    assert several.snode_addresses == ["a:1", "b:2"]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"PROFILES": "a b"}, "profiles"),
        ({"PROFILES": "../a"}, "profiles"),
        ({"PROFILES": "é"}, "profiles"),
        ({"PROFILES": "a,a"}, "profiles"),
        ({"PROFILES": "a", "TLS_CA_FILE": "roots.pem"}, "tls_ca_file"),
        ({"PROMETHEUS_URL": "prometheus:9090"}, "prometheus_url"),
        ({"PROMETHEUS_URL": "file:///etc/passwd"}, "prometheus_url"),
        ({"PROMETHEUS_URL": "http://p", "PROMETHEUS_LABELS": "cluster"}, "prometheus_labels"),
        ({"PROMETHEUS_URL": "http://p", "PROMETHEUS_LABELS": 'a"}=b'}, "prometheus_labels"),
        ({"PROMETHEUS_URL": "http://p", "PROFILES": "a,b"}, "prometheus_labels"),
    ],
)
def test_clusters_and_their_prometheus_are_checked(values: dict[str, str], field: str) -> None:
    """With several profiles, the series of each have to be known."""
    with pytest.raises(Invalid) as caught:
        load({f"ORTOO_CONSOLE_{name}": value for name, value in values.items()})
    assert caught.value.field == field


def test_the_name_of_a_cluster_is_filled_in() -> None:
    """In the URL and in the labels."""
    values = {"PROFILES": "a,b", "PROMETHEUS_URL": "http://p/{cluster}", "PROMETHEUS_LABELS": "x={cluster}, y=z"}
    found = load({f"ORTOO_CONSOLE_{name}": value for name, value in values.items()}).settings
    assert found.prometheus_url_of("b") == "http://p/b"
    assert found.prometheus_labels_of("b") == {"x": "b", "y": "z"}


def test_labels_may_be_separated_as_addresses_are() -> None:
    """A semicolon is no part of a value."""
    found = load({"ORTOO_CONSOLE_PROMETHEUS_LABELS": "x=a; y=z"}).settings
    assert found.prometheus_labels_of("") == {"x": "a", "y": "z"}
