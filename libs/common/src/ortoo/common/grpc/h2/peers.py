"""The peer of a connection: its address and its certificate, as gRPC names them."""

import ssl
from typing import Any, Final

PLAINTEXT: Final = {"transport_security_type": [b"insecure"], "security_level": [b"TSI_SECURITY_NONE"]}
TLS: Final = {"transport_security_type": [b"ssl"], "security_level": [b"TSI_PRIVACY_AND_INTEGRITY"]}


def peer_name(name: Any) -> str:
    """The address of a peer as gRPC writes it, such as `ipv4:127.0.0.1:4711`."""
    if not isinstance(name, tuple):
        return "unix:"
    host, port = name[:2]
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def spread_of(name: Any) -> float:
    """A number from -1 to 1 that differs between the connections of a peer."""
    return (name[1] * 7919 % 201 - 100) / 100 if isinstance(name, tuple) else 0.0


def auth_context_of(tls: Any) -> dict[str, list[bytes]]:
    """The properties that gRPC gives to calls of a connection; `tls` is its `ssl.SSLObject`, or None."""
    if tls is None:
        return PLAINTEXT
    certificate = tls.getpeercert() or {}
    found = dict(TLS)
    pem = tls.getpeercert(binary_form=True)
    if not certificate or pem is None:
        return found
    names = [(kind, value.encode()) for kind, value in certificate.get("subjectAltName", ())]
    common = [value.encode() for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    found |= {
        "x509_common_name": common,
        "x509_subject_alternative_name": [name for _, name in names],
        "peer_dns": [name for kind, name in names if kind == "DNS"],
        "peer_uri": [name for kind, name in names if kind == "URI"],
        "x509_pem_cert": [ssl.DER_cert_to_PEM_cert(pem).encode()],
    }
    return found
