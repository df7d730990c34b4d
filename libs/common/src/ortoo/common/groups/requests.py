"""Requests: messages whose sender waits for a reply, and the addresses for replies.

The properties have RocketMQ's names. Only snodes write them. An address is derived from a secret of the requester. It
does not reveal the secret. So a consumer that reads the address cannot register it and receive replies.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ortoo.common.errors import Invalid
from ortoo.common.records.text_rules import (
    CORRELATION_ID,
    PROPERTY_VALUE,
    REPLY_TO_CLIENT,
    TTL,
    whole_number,
    without_control_characters,
)

TIMEOUT_MS_MAX: Final = 3_600_000
SECRET_BYTES: Final = 32
ADDRESS_BYTES_MAX: Final = 4 * 255 + 33
"""Largest size of an address: a client id of 255 characters, and the digest."""
_ADDRESS_KEY = re.compile(r"[0-9a-f]{32}\Z")
_CORRELATION_ID = re.compile(r"[0-9a-f]{32}\Z")


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """The properties of a request that its replier needs."""

    correlation_id: str
    """Identifies the request: 128 random bits as 32 hexadecimal digits."""
    reply_to: str
    """The address of the requester."""
    timeout_ms: int
    """The time for which the requester waits."""

    def check(self, field: str) -> None:
        """Refuse malformed options. Errors: Invalid, naming the field below `field`."""
        check_correlation_id(self.correlation_id, f"{field}.correlation_id")
        address_key(self.reply_to, f"{field}.reply_to")
        if not 1 <= self.timeout_ms <= TIMEOUT_MS_MAX:
            raise Invalid(f"{self.timeout_ms} ms; give 1 to {TIMEOUT_MS_MAX}", field=f"{field}.timeout_ms")

    def properties(self) -> dict[str, str]:
        """The system properties of the stored request."""
        return {CORRELATION_ID: self.correlation_id, REPLY_TO_CLIENT: self.reply_to, TTL: str(self.timeout_ms)}


def request_of(properties: Mapping[str, str]) -> RequestOptions | None:
    """The request options of a received message; None if it is no request.

    A message that was stored before snodes wrote these properties may have any value in them.
    """
    timeout_ms = whole_number(properties.get(TTL, ""))
    if timeout_ms is None or CORRELATION_ID not in properties or REPLY_TO_CLIENT not in properties:
        return None
    options = RequestOptions(properties[CORRELATION_ID], properties[REPLY_TO_CLIENT], timeout_ms)
    try:
        options.check("properties")
    except Invalid:
        return None
    return options


def reply_address(client_id: str, secret: bytes) -> str:
    """The address of a requester: its client id, for people, and a digest of its secret. Errors: Invalid."""
    if len(secret) != SECRET_BYTES:
        raise Invalid(f"the secret has {len(secret)} bytes; give {SECRET_BYTES} random bytes", field="secret")
    return f"{without_control_characters(client_id)}@{hashlib.sha256(secret).hexdigest()[:32]}"


def address_key(address: str, field: str = "reply_to") -> str:
    """The part of an address that identifies the requester. Errors: Invalid for a text that is no address."""
    key = address.rpartition("@")[2]
    if not _ADDRESS_KEY.match(key):
        raise Invalid(f"{address[:80]!r} is no address; give the request's property {REPLY_TO_CLIENT}", field=field)
    PROPERTY_VALUE.check(address, field)
    if (size := len(address.encode())) > ADDRESS_BYTES_MAX:
        raise Invalid(f"the address has {size} bytes; at most {ADDRESS_BYTES_MAX} fit", field=field)
    return key


def check_correlation_id(text: str, field: str) -> None:
    """Refuse a malformed correlation id. Errors: Invalid."""
    if not _CORRELATION_ID.match(text):
        raise Invalid(f"{text[:80]!r} is no correlation id; expected 32 digits 0-9 and a-f", field=field)
