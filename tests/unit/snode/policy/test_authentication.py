"""Caching of secrets: for a while, longer while no name server answers, and unknown keys cost nothing."""

from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any

import pytest

from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.errors import Forbidden, NotFound, OrtooError, Overloaded, Unavailable
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.signature import AUTHORIZATION, DATE_TIME, SignedCall, sign
from ortoo.snode.cluster.name_server import NameServerClient
from ortoo.snode.policy.access import ACCESS_KEY_LENGTH_MAX, SECRET_TTL_S, UNKNOWN_USERS_MAX, Authentication
from ortoo.snode.settings import SnodeSettings
from ortoo.verification.time.virtual_clock import VirtualClock


class Users:
    """A name server with users, which counts the queries for each."""

    def __init__(self) -> None:
        self.secrets = {"ann": "s3cret"}
        self.asked: list[str] = []
        self.error: OrtooError | None = None

    async def get_secret(self, access_key: str) -> str:
        """The secret of a user."""
        self.asked.append(access_key)
        if self.error is not None:
            raise self.error
        if access_key not in self.secrets:
            raise NotFound("there is no such user")
        return self.secrets[access_key]


@pytest.fixture
def users() -> Users:
    """Only Ann exists."""
    return Users()


@pytest.fixture
def clock() -> VirtualClock:
    """Moved by the test."""
    return VirtualClock()


@pytest.fixture
def authentication(users: Users, clock: VirtualClock) -> Authentication:
    """Asks those users."""
    return Authentication(users, clock, SnodeSettings())  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [Unavailable("it is away"), Overloaded("too much")])
async def test_who_was_known_goes_on_while_no_name_server_answers(
    error: OrtooError, users: Users, clock: VirtualClock, authentication: Authentication
) -> None:
    """A user without a cached secret is refused, and changes count at once."""
    assert await authentication.get_secret("ann") == "s3cret"
    users.error = error
    for _ in range(100):
        clock.advance(SECRET_TTL_S)
        assert await authentication.get_secret("ann") == "s3cret"
    with pytest.raises(type(error)):
        await authentication.get_secret("bob")
    users.error = None
    users.secrets["ann"] = "another"
    clock.advance(SECRET_TTL_S)
    assert await authentication.get_secret("ann") == "another"


@pytest.mark.parametrize("error", [NotFound("deleted"), Forbidden("disabled")])
async def test_a_user_who_is_gone_is_not_known_again(
    error: OrtooError, users: Users, clock: VirtualClock, authentication: Authentication
) -> None:
    """The last answer of the name server counts while it is unreachable."""
    assert await authentication.get_secret("ann") == "s3cret"
    clock.advance(SECRET_TTL_S)
    users.error = error
    assert await authentication.get_secret("ann") == ""
    clock.advance(SECRET_TTL_S)
    users.error = Unavailable("it is away")
    with pytest.raises(Unavailable):
        await authentication.get_secret("ann")


def signed(secret_key: str, at: str) -> dict[str, str]:
    """The headers of a call that Ann signs at this time."""
    said = f"MQv2-HMAC-SHA1 Credential=ann, SignedHeaders={DATE_TIME}, Signature={sign(secret_key, at).hex()}"
    return {DATE_TIME: at, AUTHORIZATION: said}


async def test_a_signature_is_checked_at_once_while_the_secret_is_cached(
    users: Users, clock: VirtualClock, authentication: Authentication
) -> None:
    """A wrong or old signature is refused in the same way. A changed secret counts when the cached one has expired."""
    call = SignedCall("", None)

    def at_once(secret_key: str, at: str = "") -> object:
        now = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        return authentication.authenticate(signed(secret_key, at or now), call)

    first = at_once("s3cret")
    assert isinstance(first, Awaitable)
    assert await first == ("ann", "s3cret")
    assert at_once("s3cret") == ("ann", "s3cret")
    for secret_key, at in (("wrong", ""), ("s3cret", "19991231T235959Z")):
        with pytest.raises(Forbidden):
            at_once(secret_key, at)
    users.secrets["ann"] = "another"
    clock.advance(SECRET_TTL_S)
    later = at_once("s3cret")
    assert isinstance(later, Awaitable)
    with pytest.raises(Forbidden):
        await later
    with pytest.raises(Forbidden):
        at_once("s3cret")
    assert at_once("another") == ("ann", "another")
    assert users.asked == ["ann"] * 2


class Refusing(NameServerClient):
    """A name server that refuses the snode, for example for its token."""

    async def call(self, method: object, request: object, metadata: object = ()) -> Any:
        """Refused."""
        raise Forbidden("users are for those with the token")


async def test_a_snode_that_may_not_ask_takes_nobody_for_a_stranger(clock: VirtualClock) -> None:
    """A token that is changed at the name server first says nothing about users."""
    async with Channels() as channels:
        name_server = Refusing(NameServers("localhost:1"), channels, clock)
        with pytest.raises(Unavailable, match="does not let this snode read users"):
            await Authentication(name_server, clock, SnodeSettings()).get_secret("ann")


async def test_strangers_take_neither_room_nor_a_users_place(
    users: Users, clock: VirtualClock, authentication: Authentication
) -> None:
    """With any number of names; a name that no user can have is neither cached nor queried."""
    assert await authentication.get_secret("ann") == "s3cret"
    assert await authentication.get_secret("x" * (ACCESS_KEY_LENGTH_MAX + 1)) == ""
    assert users.asked == ["ann"]
    for number in range(UNKNOWN_USERS_MAX + 1):
        assert await authentication.get_secret(f"stranger-{number}") == ""
    users.asked.clear()
    assert await authentication.get_secret("ann") == "s3cret"
    assert await authentication.get_secret(f"stranger-{UNKNOWN_USERS_MAX}") == ""
    assert users.asked == []
    assert await authentication.get_secret("stranger-0") == ""
    assert users.asked == ["stranger-0"]
