"""No text about a setting or an error shows a password of a URL, or a part of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.errors import Invalid
from ortoo.common.process.masked_url import mask_url
from ortoo.common.process.settings import format_value
from ortoo.namesrv.catalog.engine import database_url_of
from ortoo.snode.membership.redis_url import redis_client

FIRST, LAST = "Zq9", "9qZ"
PASSWORDS = st.text(st.sampled_from("ab1@/:?#=%;[] é"), max_size=8).map(lambda inner: FIRST + inner + LAST)
SCHEMES = st.sampled_from(["postgresql+psycopg", "postgresql", "redis", "rediss", "http"])
USERS = st.sampled_from(["", "user", "u%40x"])
NAMES = st.sampled_from(
    ["password", "PASSWORD", "pass%77ord", "sslpassword", "passwd", "pwd", "client_secret", "token"]
)
TAILS = st.sampled_from(["", "/db", "/db?application_name=a@b", "?options=-c%20x=y", "/db?x=1&y=2#end"])


@given(SCHEMES, USERS, PASSWORDS, TAILS)
def test_a_password_before_the_host_is_masked(scheme: str, user: str, password: str, tail: str) -> None:
    """Encoded or not, in one URL or a list of URLs."""
    for written in (password, quote(password, safe="")):
        url = f"{scheme}://{user}:{written}@host:5432{tail}"
        for shown in (mask_url(url), format_value(url), format_value((url, "other"))):
            assert FIRST not in shown
            assert LAST not in shown
            assert shown.startswith(f"{scheme}://{user}:***")


@given(SCHEMES, USERS, NAMES, PASSWORDS, st.sampled_from(["", "&sslmode=require"]))
def test_a_password_among_the_parameters_is_masked(scheme: str, user: str, name: str, password: str, tail: str) -> None:
    """Names in capitals and in encoded form are found, and other parameters stay."""
    for written in (password.replace(";", ""), quote(password, safe="")):
        shown = mask_url(f"{scheme}://{user}host:5432/db?connect_timeout=3&{name}={written}{tail}")
        assert FIRST not in shown
        assert LAST not in shown
        assert shown.endswith(tail)


@pytest.mark.parametrize(
    "text",
    ["sqlite:////var/lib/a:b@c/namesrv.db", "redis://host:6379/0", "a:b@c", "http://host/?passfile=/x"],
)
def test_a_text_without_a_password_stays(text: str) -> None:
    """A path, a port and a name of a file are shown."""
    assert mask_url(text) == text


def taken_of(open_url: Callable[[str], Any], url: str) -> Any:
    """The parsed URL; None if it is refused, with an error that has no part of the password."""
    try:
        return open_url(url)
    except Invalid as error:
        refused = str(error)
    assert [part for part in (FIRST, LAST) if part in refused] == []
    return None


@given(PASSWORDS)
def test_no_refusal_of_a_url_shows_a_part_of_its_password(password: str) -> None:
    """A wrong URL is refused with the remedy; another one has the whole password where the driver takes it."""
    for url in (f"postgresql://u:{password}@host/db", f"postgresql://u:x@{password}@host:1/db"):
        database = taken_of(lambda given: database_url_of(given, Path()), url)
        assert database is None or (database.host, database.port) == ("host", None)
    for url in (f"redis://:{password}@host:6379/0", f"redis://:7/{password}@host:6379/0"):
        client = taken_of(redis_client, url)
        assert client is None or client.connection_pool.connection_kwargs["host"] == "host"
