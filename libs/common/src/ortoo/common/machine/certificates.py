"""The validity of certificates in PEM files. Needs no other library."""

import base64
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

DAY_MS: Final = 86_400_000
EXPIRES_SOON_MS: Final = 21 * DAY_MS
"""The remaining validity from which a certificate is a finding, unless it is short-lived."""
EXPIRES_NOW_MS: Final = DAY_MS
"""The remaining validity from which this finding is critical."""
LIFETIME_SHARE: Final = 4
"""A short-lived certificate is a finding only in the last quarter of its validity."""
_CERTIFICATES: Final = ("tls_certificate_file", "tls_cluster_certificate_file")
_ROOTS: Final = ("tls_client_ca_file", "tls_cluster_ca_file")
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17


@dataclass(frozen=True, slots=True)
class CertificateFile:
    """A file of certificates that a process uses."""

    setting: str
    """The setting, or the environment variable, that names the file."""
    path: Path
    is_roots: bool = False
    """Whether it holds trusted roots. They serve until the last one expires; other files until the first one does."""

    def validity(self) -> "Validity | None":
        """The validity that counts; None if the file cannot be read or has no certificate."""
        try:
            found = validities(self.path.read_bytes())
        except (OSError, ValueError):
            return None
        return (max if self.is_roots else min)(found, default=None)


@dataclass(frozen=True, slots=True, order=True)
class Validity:
    """The validity of a certificate; the order is that of the ends."""

    ends_ms: int
    """In ms since 1970."""
    begins_ms: int

    def left_ms(self, now_ms: int) -> int:
        """The remaining validity; negative after the end."""
        return self.ends_ms - now_ms

    def is_within(self, limit_ms: int, now_ms: int) -> bool:
        """Whether less than `limit_ms` remains, or a smaller limit in proportion for a short-lived certificate."""
        share_ms = (self.ends_ms - self.begins_ms) * limit_ms // (EXPIRES_SOON_MS * LIFETIME_SHARE)
        return self.left_ms(now_ms) <= max(0, min(limit_ms, share_ms))


def certificate_files(settings: object) -> list[CertificateFile]:
    """The files of certificates that the settings of a process name."""
    named = [(name, getattr(settings, name, "")) for name in (*_CERTIFICATES, *_ROOTS)]
    return [CertificateFile(name, Path(file), is_roots=name in _ROOTS) for name, file in named if file]


def validities(pem: bytes) -> list[Validity]:
    """The validity of each certificate in PEM. Errors: ValueError for other bytes."""
    return [_validity(base64.b64decode(b"".join(one.split()), validate=True)) for one in _PEM.findall(pem)]


def _validity(der: bytes) -> Validity:
    """The validity of a certificate in DER, which RFC 5280 places behind version, serial number, algorithm, issuer."""
    certificate, _ = _element(der, _SEQUENCE)
    rest, _ = _element(certificate, _SEQUENCE)
    if rest[:1] == bytes((_VERSION,)):
        _, rest = _element(rest)
    for _ in ("serial number", "algorithm", "issuer"):
        _, rest = _element(rest)
    validity, _ = _element(rest, _SEQUENCE)
    _, after = _element(validity)
    return Validity(_time_ms(after), _time_ms(validity))


def _time_ms(der: bytes) -> int:
    """The time in ms since 1970 of a UTCTime or GeneralizedTime."""
    text, _ = _element(der)
    digits = text.decode("ascii")
    if der[0] == _UTC_TIME:  # two digits of the year, which mean 1950 to 2049
        digits = f"{'20' if digits[:2] < '50' else '19'}{digits}"
    return int(datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()) * 1000


def _element(der: bytes, tag: int | None = None) -> tuple[bytes, bytes]:
    """The content of the first DER element, and the bytes behind it. Errors: ValueError."""
    if len(der) < 2 or (tag is not None and der[0] != tag):
        raise ValueError("the bytes are not a certificate")
    length, begin = der[1], 2
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(der[2:begin])
    if len(der) < begin + length:
        raise ValueError("the certificate is truncated")
    return der[begin : begin + length], der[begin + length :]
