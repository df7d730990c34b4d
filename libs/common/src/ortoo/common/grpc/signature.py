"""How clients sign, RocketMQ's and our own: HMAC-SHA1 over the header `x-mq-date-time`, told in `authorization`.

    MQv2-HMAC-SHA1 Credential=ACCESS_KEY, SignedHeaders=x-mq-date-time, Signature=HEX

The access key may be followed by `/` and more. The time counts: a signature is good for a few minutes, in which who can
listen can say it again, which TLS prevents. Some of RocketMQ's clients call their local time UTC.
"""

import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime

from ortoo.common.errors import Invalid

DATE_TIME = "x-mq-date-time"
AUTHORIZATION = "authorization"


HALF_HOUR_MS = 1_800_000
ZONES_MS = (-12 * 3_600_000, 14 * 3_600_000)
"""The offsets of local times, from the west of the date line to its east."""
QUARTER_ZONES_MS = tuple(minutes * 60_000 for minutes in (345, 525, 765, 825))
"""Those that are no whole half hours: Nepal's, Eucla's and Chatham's, in winter and summer."""


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


def check_time(date_time: str, now_ms: int, window_ms: int, *, local: bool) -> None:
    """Refuse what was not signed about now: `YYYYMMDDThhmmssZ`, or RFC 3339 with an offset.

    With `local` the first form may be the time of any zone: Java, Python and Go clients call theirs UTC.
    Errors: Invalid, naming both times.
    """
    ahead_ms = signed_at_ms(date_time) - now_ms
    is_compact = "-" not in date_time
    offsets_ms = [0]
    if local and is_compact:
        nearest_ms = round(ahead_ms / HALF_HOUR_MS) * HALF_HOUR_MS
        offsets_ms += [max(ZONES_MS[0], min(nearest_ms, ZONES_MS[1])), *QUARTER_ZONES_MS]
    if min(abs(ahead_ms - offset_ms) for offset_ms in offsets_ms) > window_ms:
        now = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        raise Invalid(
            f"the request was signed at {date_time}, here it is {now}: more than {window_ms // 1000} s apart; sign "
            "each request when it is sent, and set the clocks",
            field=DATE_TIME,
        )


def signed_at_ms(date_time: str) -> int:
    """The time in a header, by its own words. Errors: Invalid."""
    try:
        if len(date_time) > 64:
            raise ValueError("too long")
        at = datetime.fromisoformat(date_time)
        return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise Invalid(
            f"{date_time[:64]!r} is no time; give it as 20240102T030405Z, or by RFC 3339 with an offset",
            field=DATE_TIME,
        ) from None
