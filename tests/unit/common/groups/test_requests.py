"""The options of a request and the addresses for replies."""

import pytest

from ortoo.common.errors import Invalid
from ortoo.common.groups.requests import TIMEOUT_MS_MAX, RequestOptions, address_key, reply_address, request_of
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.common.records.text_rules import REQUEST_LIMITS, SYSTEM_PROPERTIES, TEXT_BYTES_MAX

SECRET = bytes(range(32))
OPTIONS = RequestOptions("0" * 32, reply_address("shop@1", SECRET), 3_000)


def test_options_are_read_from_the_properties_that_they_write() -> None:
    """All of them are system properties, which clients cannot send."""
    assert request_of({"own": "1", **OPTIONS.properties()}) == OPTIONS
    assert OPTIONS.properties().keys() <= SYSTEM_PROPERTIES


@pytest.mark.parametrize("name", OPTIONS.properties())
@pytest.mark.parametrize("value", [None, "", "x", "0", "-1", "1.5", "9" * 30, "0" * 33, "F" * 32])
def test_other_values_make_no_request(name: str, value: str | None) -> None:
    """Messages from before the reservation of the names may have any value."""
    properties = {**OPTIONS.properties(), name: value}
    assert request_of({key: one for key, one in properties.items() if one is not None}) is None


def test_an_address_depends_on_the_secret_only() -> None:
    """The client id in it is for people. The address does not contain the secret."""
    address = reply_address("a\nb", SECRET)
    assert address == "a b@630dcd2966c4336691125448bbb25b4f"
    assert address_key(address) == address_key(reply_address("other", SECRET))
    assert address_key(address) != address_key(reply_address("a\nb", SECRET[::-1]))
    for wrong in (b"", SECRET[:31], SECRET * 2):
        with pytest.raises(Invalid, match="32 random bytes"):
            reply_address("a", wrong)


@pytest.mark.parametrize(
    "text", ["", "shop", "shop@", "shop@" + "g" * 32, "a\x00@" + "0" * 32, "a" * 1021 + "@" + "0" * 32]
)
def test_a_text_that_is_no_address_is_refused(text: str) -> None:
    """The error names the property that has the address."""
    with pytest.raises(Invalid):
        address_key(text)


def test_a_request_of_the_longest_client_id_fits_beside_the_largest_texts() -> None:
    """Client ids have at most 255 characters. Snodes add the properties of requests to messages that are checked."""
    message = Message(b"1", tag="t" * TEXT_BYTES_MAX)
    message.check()
    address = reply_address("\N{GRINNING FACE}" * 255, SECRET)
    assert address_key(address)
    properties = RequestOptions(OPTIONS.correlation_id, address, TIMEOUT_MS_MAX).properties()
    encode([message.replace(properties=properties)], now_ms=1, limits=REQUEST_LIMITS)


@pytest.mark.parametrize("timeout_ms", [0, 3_600_001])
def test_the_timeout_has_a_limit(timeout_ms: int) -> None:
    """The error names the field."""
    with pytest.raises(Invalid, match=r"requests\[0\].timeout_ms"):
        RequestOptions(OPTIONS.correlation_id, OPTIONS.reply_to, timeout_ms).check("requests[0]")
