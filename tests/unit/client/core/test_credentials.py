"""The sources of address and credentials: given, profile, environment, in this order."""

from pathlib import Path

import pytest

from ortoo.client.core import connection
from ortoo.client.core.credentials import (
    Credentials,
    addresses_from,
    credentials_from,
    effective_environment,
    read_profile,
    tls_from,
)
from ortoo.common.errors import Invalid, NotFound
from ortoo.common.grpc.transport import using_transport
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.testing.memory_grpc.transport import MemoryTransport


def home(tmp_path: Path, current: str = "", **profiles: str) -> dict[str, str]:
    """An environment with these profiles."""
    folder = tmp_path / "ortoo"
    folder.mkdir()
    for name, text in profiles.items():
        (folder / f"{name}.toml").write_text(text)
    if current:
        (folder / "current").write_text(current + "\n")
    return {"XDG_CONFIG_HOME": str(tmp_path)}


PROD = 'address = "a:1, b:2"\naccess_key = "shop"\nsecret_key = "s"\ntls_ca_file = "system"\n'


def test_without_a_word_it_is_where_ortoo_dev_listens(tmp_path: Path) -> None:
    """No profile, no variable, no argument."""
    environ = home(tmp_path)
    assert addresses_from("", effective_environment(environ=environ)) == ["localhost:8081"]


def test_the_current_profile_counts_as_a_whole(tmp_path: Path) -> None:
    """Addresses, keys and files come from the profile; keys of the environment are not mixed in."""
    environ = home(tmp_path, "prod", prod=PROD, plain='address = "c:3"') | {"ORTOO_ACCESS_KEY": "other"}
    around = effective_environment(environ=environ)
    assert addresses_from("", around) == ["a:1", "b:2"]
    who = credentials_from("", "", around)
    assert who is not None
    assert (who.access_key, who.secret_key) == ("shop", "s")
    assert tls_from("", "", "", around) is not None
    around = effective_environment("plain", environ)
    assert (addresses_from("", around), credentials_from("", "", around)) == (["c:3"], None)


def test_a_connection_signs_with_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile without keys is used as a whole: keys of the environment do not sign calls."""
    signed: list[str] = []
    monkeypatch.setenv("ORTOO_ACCESS_KEY", "other")
    monkeypatch.setenv("ORTOO_SECRET_KEY", "s")
    monkeypatch.setattr(connection, "signing", lambda access_key, *_: signed.append(access_key))
    for who in (None, Credentials("shop", "s")):
        connection.Connection(["c:3"], clock=SystemClock(), randomness=Randomness(), credentials=who)
    assert signed == ["shop"]


def test_an_address_of_the_environment_is_no_profiles_business(tmp_path: Path) -> None:
    """ORTOO_ADDRESS overrides the current profile, and a named profile overrides ORTOO_ADDRESS."""
    environ = home(tmp_path, "prod", prod=PROD) | {"ORTOO_ADDRESS": "d:4"}
    assert addresses_from("", effective_environment(environ=environ)) == ["d:4"]
    assert credentials_from("", "", effective_environment(environ=environ)) is None
    assert addresses_from("", effective_environment("prod", environ)) == ["a:1", "b:2"]
    assert addresses_from("", effective_environment(environ=environ | {"ORTOO_PROFILE": "prod"})) == ["a:1", "b:2"]


def test_on_a_simulated_network_nobodys_profile_counts(tmp_path: Path) -> None:
    """A test with its own broker must not use the developer's cluster."""
    environ = home(tmp_path, "prod", prod=PROD) | {"ORTOO_ADDRESS": "d:4"}
    with using_transport(MemoryTransport()):
        assert addresses_from("", effective_environment(environ=environ)) == ["localhost:8081"]


@pytest.mark.parametrize(
    ("text", "words"), [("adress = 'x'", "adress"), ("address = 1", "address"), ("= nothing", "cannot be read")]
)
def test_a_profile_with_a_slip_is_refused_by_name(text: str, words: str, tmp_path: Path) -> None:
    """The error has the file and the mistake, before any connection."""
    with pytest.raises(Invalid, match=words):
        read_profile("slip", home(tmp_path, slip=text))


def test_a_profile_that_is_not_there(tmp_path: Path) -> None:
    """A name without a file, and an invalid name."""
    environ = home(tmp_path)
    with pytest.raises(NotFound, match="no profile prod"):
        effective_environment("prod", environ)
    with pytest.raises(Invalid, match="not a valid name of a profile"):
        effective_environment("../prod", environ)
