"""The validity of certificates, and the findings of those that soon expire."""

import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.cluster.service_settings import ServiceSettings
from ortoo.common.errors.findings import Finding
from ortoo.common.machine.certificates import (
    DAY_MS,
    CertificateFile,
    Validity,
    certificate_files,
    validities,
)
from ortoo.common.telemetry.process_metrics import certificate_findings

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
BEGIN_MS = int(BEGIN.timestamp()) * 1000


def certificate(days: float, begin: datetime = BEGIN) -> bytes:
    """A certificate in PEM that is valid for a number of days."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a" * 40)])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM)


def findings(folder: Path, pem: bytes, *, at_day: float, is_roots: bool = False) -> list[Finding]:
    """The findings of a file, a number of days after BEGIN."""
    file = folder / "c.pem"
    file.write_bytes(pem)
    return list(certificate_findings([CertificateFile("tls_x", file, is_roots)], BEGIN_MS + int(at_day * DAY_MS)))


@pytest.mark.parametrize("begin", [BEGIN, datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC), BEGIN.replace(year=2060)])
def test_both_forms_of_times_are_read(begin: datetime) -> None:
    """Years up to 2049 have two digits in a certificate, later ones have four."""
    begins_ms = int(begin.timestamp()) * 1000
    text = b"subject=...\n" + certificate(90, begin) + certificate(1, begin)
    assert validities(text) == [
        Validity(begins_ms + 90 * DAY_MS, begins_ms),
        Validity(begins_ms + DAY_MS, begins_ms),
    ]


@pytest.mark.parametrize(("left_days", "name", "is_critical"), [
    (21.1, "", False), (20.9, "certificate expires", False), (6.9, "certificate expires", False),
    (0.9, "certificate expires", True), (-0.1, "certificate expired", True),
])  # fmt: skip
def test_a_certificate_is_a_finding_for_three_weeks(
    left_days: float, name: str, is_critical: bool, tmp_path: Path
) -> None:
    """It is critical on the last day."""
    found = findings(tmp_path, certificate(365), at_day=365 - left_days)
    assert [(one.name, one.critical) for one in found] == ([(name, is_critical)] if name else [])
    assert all("tls_x" in one.observed for one in found)


def test_a_short_lived_certificate_is_a_finding_only_if_its_renewal_is_late(tmp_path: Path) -> None:
    """Certificates that are renewed every day would otherwise always be reported."""
    assert findings(tmp_path, certificate(1), at_day=0.7) == []
    assert [one.name for one in findings(tmp_path, certificate(1), at_day=0.8)] == ["certificate expires"]
    assert [one.name for one in findings(tmp_path, certificate(1), at_day=1.1)] == ["certificate expired"]


def test_the_first_certificate_of_a_chain_and_the_last_root_count(tmp_path: Path) -> None:
    """A chain is broken with its first expired certificate; roots are replaced by adding the new one."""
    both = certificate(30) + certificate(365)
    assert len(findings(tmp_path, both, at_day=29)) == 1
    assert findings(tmp_path, both, at_day=29, is_roots=True) == []


def test_unreadable_files_have_no_validity(tmp_path: Path) -> None:
    """The process that uses them reports that at its start."""
    assert CertificateFile("tls_x", tmp_path / "none.pem").validity() is None
    assert findings(tmp_path, b"nonsense", at_day=0) == []
    damaged = certificate(1)[:200] + b"\n-----END CERTIFICATE-----\n"
    assert findings(tmp_path, damaged, at_day=0) == []


@given(st.binary(max_size=300), st.integers(0, 300))
def test_damaged_certificates_raise_only_value_errors(noise: bytes, place: int) -> None:
    """Any bytes may be in the file."""
    import base64

    der = base64.b64decode(b"".join(SAMPLE.splitlines()[1:-1]))
    changed = der[:place] + noise + der[place + len(noise) :]
    pem = b"-----BEGIN CERTIFICATE-----\n" + base64.b64encode(changed) + b"\n-----END CERTIFICATE-----\n"
    with contextlib.suppress(ValueError):
        validities(pem)


SAMPLE = certificate(30)


def test_the_files_of_the_settings_are_watched() -> None:
    """Certificates and roots; keys have no validity."""
    settings = ServiceSettings(
        tls_cluster_certificate_file="a.pem", tls_cluster_key_file="a.key", tls_cluster_ca_file="ca.pem"
    )
    assert certificate_files(settings) == [
        CertificateFile("tls_cluster_certificate_file", Path("a.pem")),
        CertificateFile("tls_cluster_ca_file", Path("ca.pem"), is_roots=True),
    ]
