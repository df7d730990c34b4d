"""How clients sign, RocketMQ's and our own: HMAC-SHA1 over the header `x-mq-date-time`, told in `authorization`.

    MQv2-HMAC-SHA1 Credential=ACCESS_KEY, SignedHeaders=x-mq-date-time, Signature=HEX

The access key may be followed by `/` and more. Clients call their local time UTC, so no clock is compared: who can
listen can say the same again, which TLS prevents.
"""

import hashlib
import hmac
from dataclasses import dataclass

from ortoo.common.errors import Invalid

DATE_TIME = "x-mq-date-time"
AUTHORIZATION = "authorization"


@dataclass(frozen=True, slots=True)
class Signature:
    """Who signed, and what came out."""

    access_key: str
    digest: bytes


def read_signature(authorization: str) -> Signature:
    """Read the header. Errors: Invalid, saying what is missing."""
    _, _, fields = authorization.partition(" ")
    said = dict(part.strip().split("=", 1) for part in fields.split(",") if "=" in part)
    access_key = said.get("Credential", "").partition("/")[0]
    if not access_key:
        raise Invalid("the signature names nobody; give the client an access key and a secret", field=AUTHORIZATION)
    try:
        digest = bytes.fromhex(said.get("Signature", ""))
    except ValueError:
        raise Invalid("the signature is no hexadecimal text", field=AUTHORIZATION) from None
    return Signature(access_key, digest)


def sign(secret_key: str, date_time: str) -> bytes:
    """What the right digest is."""
    return hmac.new(secret_key.encode(), date_time.encode(), hashlib.sha1).digest()


def signed_headers(access_key: str, secret_key: str, date_time: str) -> tuple[tuple[str, str], ...]:
    """The headers of a signed call."""
    digest = sign(secret_key, date_time).hex()
    said = f"MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders={DATE_TIME}, Signature={digest}"
    return ((DATE_TIME, date_time), (AUTHORIZATION, said))


def is_signed(signature: Signature, secret_key: str, date_time: str) -> bool:
    """Whether the secret made this signature; takes as long for a wrong one as for a right one."""
    return hmac.compare_digest(signature.digest, sign(secret_key, date_time))
