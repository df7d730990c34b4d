"""Certificates for tests, made by openssl: a certificate authority, and the certificates that it signs."""

import asyncio
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ortoo.common.errors import handshakes
from ortoo.common.process.clock import SystemClock

HOST = "localhost"
FAULTS = {
    "server expired": handshakes.EXPIRED,
    "server not valid yet": handshakes.NOT_YET_VALID,
    "server has another name": handshakes.OTHER_NAME,
    "server of another authority": handshakes.UNTRUSTED,
    "server in plaintext": handshakes.PLAINTEXT,
    "client expired": handshakes.CLOSED,
    "client of another authority": handshakes.CLOSED,
    "client in plaintext": handshakes.CLOSED,
}
"""Faults of one side's certificate or bytes, and the reason that a caller finds."""
NAME = "ortoo.cluster"
"""The name that the certificates of all processes share and that their callers expect."""
DAYS = "60"
"""The validity of certificates, long enough not to be a finding."""
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
"""Arguments of openssl for a key that it makes at once; an RSA key takes it a fifth of a second."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key, PEM."""

    certificate_file: Path
    key_file: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority; its own certificate is the root."""

    folder: Path

    @classmethod
    async def make(cls, folder: Path) -> "Authority":
        """Make a new one in a folder that does not exist yet; the test is skipped where there is no openssl."""
        if shutil.which("openssl") is None:
            pytest.skip("NO OPENSSL, mutual TLS was NOT tested; install openssl")
        await asyncio.to_thread(folder.mkdir, parents=True)
        files = ("-keyout", f"{folder}/ca.key", "-out", f"{folder}/ca.pem")
        await _openssl("req", "-x509", *NEW_KEY, "-days", DAYS, "-subj", "/CN=authority", *files)
        return cls(folder)

    @property
    def ca_file(self) -> Path:
        """The root."""
        return self.folder / "ca.pem"

    async def sign(self, who: str, *names: str) -> Certificate:
        """Write a certificate into files named after `who`, replacing existing ones.

        It is for these DNS names and URIs; by default for the shared name and for `who`.ortoo.cluster.
        """
        made = Certificate(self.folder / f"{who}.pem", self.folder / f"{who}.key")
        asked, about = self.folder / f"{who}.csr", self.folder / f"{who}.ext"
        names = names or (NAME, f"{who}.{NAME}")
        kinds = ("URI" if "://" in name else "email" if "@" in name else "DNS" for name in names)
        about.write_text("subjectAltName=" + ",".join(f"{kind}:{one}" for kind, one in zip(kinds, names, strict=True)))
        key = self.folder / f"{who}.new.key"
        await _openssl("req", *NEW_KEY, "-subj", f"/CN={names[0]}", "-keyout", f"{key}", "-out", f"{asked}")
        fresh = self.folder / f"{who}.new.pem"
        await _openssl(
            "x509", "-req", "-in", f"{asked}", "-CA", f"{self.ca_file}", "-CAkey", f"{self.folder}/ca.key",
            "-CAcreateserial", "-days", DAYS, "-extfile", f"{about}", "-out", f"{fresh}",
        )  # fmt: skip
        key.replace(made.key_file)
        fresh.replace(made.certificate_file)
        return made

    def sign_dated(self, who: str, *names: str, begins_days: float, ends_days: float) -> Certificate:
        """As `sign`, for DNS names; the certificate is valid between two times, in days from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
        now = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
        authority = load_pem_private_key((self.folder / "ca.key").read_bytes(), None)
        signed = (
            x509.CertificateBuilder(x509.load_pem_x509_certificate(self.ca_file.read_bytes()).subject, subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=begins_days))
            .not_valid_after(now + timedelta(days=ends_days))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(one) for one in names]), critical=False)
            .sign(authority, hashes.SHA256())  # type: ignore[arg-type]
        )
        made = Certificate(self.folder / f"{who}.pem", self.folder / f"{who}.key")
        made.key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        made.certificate_file.write_bytes(signed.public_bytes(Encoding.PEM))
        return made

    def settings(self, of: Certificate, listen_address: str = "127.0.0.1:0") -> dict[str, str]:
        """Settings with which a role uses mutual TLS with others that have this root."""
        return {
            "tls_cluster_listen_address": listen_address,
            "tls_cluster_certificate_file": str(of.certificate_file),
            "tls_cluster_key_file": str(of.key_file),
            "tls_cluster_ca_file": str(self.ca_file),
            "tls_cluster_name": NAME,
        }


async def _openssl(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec("openssl", *arguments, stderr=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0, arguments


async def dated_certificates(folder: Path) -> tuple[Authority, dict[str, Certificate]]:
    """An authority, and the certificates of servers and clients by their fault."""
    authority, other = await Authority.make(folder / "authority"), await Authority.make(folder / "other")
    return authority, {
        "good": authority.sign_dated("good", HOST, begins_days=-1, ends_days=30),
        "expired": authority.sign_dated("expired", HOST, begins_days=-2, ends_days=-1),
        "not valid yet": authority.sign_dated("later", HOST, begins_days=1, ends_days=2),
        "has another name": authority.sign_dated("named", "elsewhere", begins_days=-1, ends_days=2),
        "of another authority": other.sign_dated("stranger", HOST, begins_days=-1, ends_days=2),
    }
