"""How clients sign, told in the header `authorization`: RocketMQ's in the first way, our own in the second.

    MQv2-HMAC-SHA1 Credential=ACCESS_KEY, SignedHeaders=x-mq-date-time, Signature=HEX
    ORTOO1-HMAC-SHA256 Credential=ACCESS_KEY, SignedHeaders=x-mq-date-time;method;request, Signature=HEX

The first is HMAC-SHA1 over the header `x-mq-date-time`: who can listen can say it again, for any request. The second is
HMAC-SHA256 over three lines: that header, the method ("AdminService/ListTopics"), and the SHA-256 of the request's
bytes in hexadecimal. A stream has no such bytes: its third line is empty, and what is signed is its opening. Who can
listen can say the same again, and nothing else. The access key may be followed by `/` and more. The time counts: a
signature is good for a few minutes. Some of RocketMQ's clients call their local time UTC.
"""

import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime

from ortoo.common.errors import Invalid
from ortoo.common.grpc.channels import Headers, HeadersOf
from ortoo.common.process.clock import Clock

DATE_TIME = "x-mq-date-time"
AUTHORIZATION = "authorization"
REQUEST_ALGORITHM = "ORTOO1-HMAC-SHA256"
"""Of signatures that cover method and request."""

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
    covers_request: bool = False
    """Whether it is one over method and request."""


@dataclass(frozen=True, slots=True)
class SignedCall:
    """A call as its signature covers it."""

    method: str
    """Such as "AdminService/ListTopics"."""
    request: bytes | None
    """As it came; None for a stream."""

    def text(self, date_time: str) -> bytes:
        """What is signed."""
        digest = "" if self.request is None else hashlib.sha256(self.request).hexdigest()
        return f"{date_time}\n{self.method}\n{digest}".encode()


def read_signature(authorization: str) -> Signature:
    """Read the header. Errors: Invalid, saying what is missing."""
    algorithm, _, fields = authorization.partition(" ")
    said = dict(part.strip().split("=", 1) for part in fields.split(",") if "=" in part)
    access_key = said.get("Credential", "").partition("/")[0]
    if not access_key:
        raise Invalid("the signature names nobody; give the client an access key and a secret", field=AUTHORIZATION)
    try:
        digest = bytes.fromhex(said.get("Signature", ""))
    except ValueError:
        raise Invalid("the signature is no hexadecimal text", field=AUTHORIZATION) from None
    return Signature(access_key, digest, algorithm == REQUEST_ALGORITHM)


def sign(secret_key: str, date_time: str) -> bytes:
    """What the right digest is."""
    return hmac.new(secret_key.encode(), date_time.encode(), hashlib.sha1).digest()


def request_headers(access_key: str, secret_key: str, date_time: str, call: SignedCall) -> Headers:
    """The headers of a call that is signed with its method and request."""
    digest = hmac.digest(secret_key.encode(), call.text(date_time), hashlib.sha256).hex()
    said = f"{REQUEST_ALGORITHM} Credential={access_key}, SignedHeaders={DATE_TIME};method;request, Signature={digest}"
    return ((DATE_TIME, date_time), (AUTHORIZATION, said))


def signing(access_key: str, secret_key: str, clock: Clock) -> HeadersOf:
    """What makes the headers of each call that a user makes, method and request included."""

    def headers_of(path: str, request: bytes | None) -> Headers:
        now = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        return request_headers(access_key, secret_key, now, SignedCall(path.rpartition(".")[2], request))

    return headers_of


def is_signed(signature: Signature, secret_key: str, date_time: str, call: SignedCall) -> bool:
    """Whether the secret made this signature; takes as long for a wrong one as for a right one."""
    if signature.covers_request:
        expected = hmac.digest(secret_key.encode(), call.text(date_time), hashlib.sha256)
    else:
        expected = sign(secret_key, date_time)
    return hmac.compare_digest(signature.digest, expected)


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
