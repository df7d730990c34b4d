"""The certificate with which the command itself calls snodes."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ortoo.cli.doctor.run import _own_certificates
from ortoo.common.process.clock import SystemClock
from tests.unit.common.machine.test_certificates import certificate

VALID_DAYS = 365


@pytest.mark.parametrize(
    ("left_days", "name"), [(100.0, ""), (5.5, "certificate expires"), (-0.5, "certificate expired")]
)
def test_the_certificate_of_the_user_is_checked(tmp_path: Path, left_days: float, name: str) -> None:
    """The finding names the variable with the file. Without a certificate there is none."""
    file = tmp_path / "own.pem"
    now = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
    file.write_bytes(certificate(VALID_DAYS, now - timedelta(days=VALID_DAYS - left_days)))
    found = _own_certificates({"ORTOO_TLS_CERTIFICATE_FILE": str(file)})
    assert [one.name for one in found] == ([name] if name else [])
    assert all("ORTOO_TLS_CERTIFICATE_FILE" in one.observed for one in found)
    assert _own_certificates({}) == []
