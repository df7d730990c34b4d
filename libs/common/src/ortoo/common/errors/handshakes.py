"""Explains failed TLS handshakes: the text of a failed connection becomes a reason and a remedy. Pure.

The text comes from gRPC, or from OpenSSL where a process connects without gRPC's core.
"""

from dataclasses import dataclass
from typing import Final

from ortoo.common.errors import OrtooError, Unavailable


@dataclass(frozen=True, slots=True)
class HandshakeFault:
    """The reason why no TLS connection to a peer came about."""

    observed: str
    """The reason; the peer is the subject."""
    remedy: str


_RENEW = "renew its certificate, which is read again without a restart"
_TRUST = (
    "give both sides certificates of one authority, and its root as CA file (tls_cluster_ca_file between processes, "
    "ORTOO_TLS_CA_FILE for clients)"
)
EXPIRED: Final = HandshakeFault("its certificate has expired", _RENEW)
NOT_YET_VALID: Final = HandshakeFault(
    "its certificate is not valid yet", f"compare the clocks of both machines (timedatectl); otherwise {_RENEW}"
)
OTHER_NAME: Final = HandshakeFault(
    "its certificate is for another name than its address",
    "use an address that the certificate names, or renew the certificate with that name; between processes "
    "tls_cluster_name can be the name that all certificates share",
)
UNTRUSTED: Final = HandshakeFault("its certificate is not signed by a trusted authority", _TRUST)
PLAINTEXT: Final = HandshakeFault(
    "it does not use TLS at this port",
    "use its TLS port, or set TLS up there (tls_listen_address for clients, tls_cluster_listen_address for processes)",
)
CLOSED: Final = HandshakeFault(
    "it closed the connection at once: it expects TLS, or it rejects the certificate of the caller",
    "check that both sides use TLS, and that the caller's certificate has not expired and is signed by an authority "
    "that the other side trusts",
)
FAILED: Final = HandshakeFault("the TLS handshake with it failed", _TRUST)
_BY_TEXT: Final = (
    ("certificate has expired", EXPIRED),
    ("certificate is not yet valid", NOT_YET_VALID),
    ("Hostname Verification Check failed", OTHER_NAME),
    ("certificate is not valid for", OTHER_NAME),
    ("CERTIFICATE_VERIFY_FAILED", UNTRUSTED),
    ("certificate signature failure", UNTRUSTED),
    ("WRONG_VERSION_NUMBER", PLAINTEXT),
    ("handshake failed", FAILED),
    # The core of gRPC does not name the alert with which the peer rejected the certificate.
    ("Unwrap failed", CLOSED),
)


class HandshakeFailed(Unavailable):
    """No TLS connection to the peer came about. A retry succeeds once an operator has corrected a certificate."""

    def __init__(self, peer: str, fault: HandshakeFault) -> None:
        """The error of a call to `peer`."""
        super().__init__(f"{peer} cannot be reached: {fault.observed}; {fault.remedy}")
        self.fault = fault


def handshake_fault(details: str) -> HandshakeFault | None:
    """The fault that the transport's text of a failed call describes; None for other failures."""
    for text, fault in _BY_TEXT:
        if text in details:
            return fault
    return CLOSED if details.startswith("failed to connect") and details.endswith("Socket closed") else None


def reason_of(error: OrtooError) -> str:
    """The reason of a failed call for a finding, which has its remedy elsewhere."""
    return f"no TLS connection to it: {error.fault.observed}" if isinstance(error, HandshakeFailed) else error.message


def remedy_for(error: OrtooError | None, otherwise: str) -> str:
    """The remedy of a failed handshake; `otherwise` for another error."""
    return error.fault.remedy if isinstance(error, HandshakeFailed) else otherwise
