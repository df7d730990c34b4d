"""Signatures of clients in the header `authorization`: RocketMQ's clients use the first form, our own the second.

    MQv2-HMAC-SHA1 Credential=ACCESS_KEY, SignedHeaders=x-mq-date-time, Signature=HEX
    ORTOO1-HMAC-SHA256 Credential=ACCESS_KEY, SignedHeaders=x-mq-date-time;method;request, Signature=HEX

The first form is HMAC-SHA1 over the header `x-mq-date-time`; an eavesdropper can reuse it for any request. The second
form is HMAC-SHA256 over three lines: that header, the method ("AdminService/ListTopics"), and the SHA-256 of the
request's bytes in hexadecimal. For a stream, only its opening is signed, and the third line is empty. An eavesdropper
can only repeat the same request. The access key may be followed by `/` and more. A signature is valid for a few
minutes. Some of RocketMQ's clients send their local time as UTC.
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
"""The algorithm of signatures that cover method and request."""

HALF_HOUR_MS = 1_800_000
ZONES_MS = (-12 * 3_600_000, 14 * 3_600_000)
"""The smallest and the largest offset of a local time."""
QUARTER_ZONES_MS = tuple(minutes * 60_000 for minutes in (345, 525, 765, 825))
"""Offsets that are not multiples of half an hour: Nepal's, Eucla's and Chatham's, in winter and summer."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The access key and the digest of a signature."""

    access_key: str
    digest: bytes
    covers_request: bool = False
    """Whether the signature covers the method and the request."""


@dataclass(frozen=True, slots=True)
class SignedCall:
    """The parts of a call that its signature covers."""

    method: str
    """Such as "AdminService/ListTopics"."""
    request: bytes | None
    """The bytes as received; None for a stream."""

    def text(self, date_time: str) -> bytes:
        """The bytes over which the signature is computed, for a call at this time."""
        digest = "" if self.request is None else hashlib.sha256(self.request).hexdigest()
        return f"{date_time}\n{self.method}\n{digest}".encode()


def read_signature(authorization: str) -> Signature:
    """Read the value of the header `authorization`. Errors: Invalid, naming the missing part."""
    algorithm, _, fields = authorization.partition(" ")
    said = dict(part.strip().split("=", 1) for part in fields.split(",") if "=" in part)
    access_key = said.get("Credential", "").partition("/")[0]
    if not access_key:
        raise Invalid("missing access key: configure the client with an access key and a secret", field=AUTHORIZATION)
    try:
        digest = bytes.fromhex(said.get("Signature", ""))
    except ValueError:
        raise Invalid("the signature is not hexadecimal text", field=AUTHORIZATION) from None
    return Signature(access_key, digest, algorithm == REQUEST_ALGORITHM)


def sign(secret_key: str, date_time: str) -> bytes:
    """The digest of a signature in RocketMQ's form, made at this time."""
    return hmac.digest(secret_key.encode(), date_time.encode(), hashlib.sha1)


def request_headers(access_key: str, secret_key: str, date_time: str, call: SignedCall) -> Headers:
    """The headers of a signed call; the signature, in Ortoo's form, covers the method and the request."""
    digest = hmac.digest(secret_key.encode(), call.text(date_time), hashlib.sha256).hex()
    said = f"{REQUEST_ALGORITHM} Credential={access_key}, SignedHeaders={DATE_TIME};method;request, Signature={digest}"
    return ((DATE_TIME, date_time), (AUTHORIZATION, said))


def signing(access_key: str, secret_key: str, clock: Clock) -> HeadersOf:
    """A function that makes the headers of each call of a user, with signatures in Ortoo's form."""

    def headers_of(path: str, request: bytes | None) -> Headers:
        now = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        return request_headers(access_key, secret_key, now, SignedCall(path.rpartition(".")[2], request))

    return headers_of


def is_signed(signature: Signature, secret_key: str, date_time: str, call: SignedCall) -> bool:
    """Whether the secret made this signature; compares in constant time."""
    if signature.covers_request:
        expected = hmac.digest(secret_key.encode(), call.text(date_time), hashlib.sha256)
    else:
        expected = sign(secret_key, date_time)
    return hmac.compare_digest(signature.digest, expected)


def check_time(date_time: str, now_ms: int, window_ms: int, *, local: bool) -> None:
    """Refuse a time that is not close to now: `YYYYMMDDThhmmssZ`, or RFC 3339 with an offset.

    With `local` a time of the form `YYYYMMDDThhmmssZ` may be the local time of any time zone. RocketMQ's Java, Python
    and Go clients send local time as UTC. Errors: Invalid, naming both times.
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
            f"the request was signed at {date_time}, but the server's clock shows {now}. At most "
            f"{window_ms // 1000} s are allowed; sign requests when they are sent, and set the clocks",
            field=DATE_TIME,
        )


def signed_at_ms(date_time: str) -> int:
    """The time in a header in ms; a local time is not corrected to UTC. Errors: Invalid."""
    try:
        if len(date_time) > 64:
            raise ValueError("too long")
        at = datetime.fromisoformat(date_time)
        return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise Invalid(
            f"{date_time[:64]!r} is not a time; give it as 20240102T030405Z, or in the form of RFC 3339 with an offset",
            field=DATE_TIME,
        ) from None
