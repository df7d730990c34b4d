"""Applications can install Ortoo beside large packages: a resolver finds versions from the package index."""

from pathlib import Path

import pytest

from deploy.resolve_check import OURS, PACKAGES, resolve

pytestmark = [pytest.mark.install, pytest.mark.timeout(600)]


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("ours", OURS)
def test_versions_are_found_beside(ours: str, package: str, archives: Path) -> None:
    """The newest version of the package that the resolver chooses has one set of libraries with Ortoo."""
    found = resolve((ours, package), python="3.11", archives=archives)
    assert found.versions, found.row()
    assert {"ortoo-client", "grpcio", "protobuf", package} <= found.versions.keys()


def test_the_client_accepts_older_libraries(archives: Path, tmp_path: Path) -> None:
    """The pins of an older application, such as those of Airflow 3.0, are versions that the client accepts."""
    pins = ("grpcio==1.71.0", "grpcio-health-checking==1.62.3", "protobuf==4.25.8", "msgspec==0.19.0", "typer==0.16.0")
    (tmp_path / "pins.txt").write_text("\n".join((*pins, "rich==13.9.4", "structlog==25.3.0", "SQLAlchemy==1.4.54")))
    constraints = str(tmp_path / "pins.txt")
    found = resolve(("ortoo", "apache-airflow==3.0.1"), python="3.11", archives=archives, constraints=constraints)
    assert found.versions.get("protobuf") == "4.25.8", found.row()


def test_a_conflict_is_reported(archives: Path) -> None:
    """A library that is too old for Ortoo has no solution, and the row names it."""
    found = resolve(("ortoo", "grpcio<1.60"), python="3.11", archives=archives)
    assert not found.versions
    assert "NO SOLUTION" in found.row()
    assert "grpcio" in found.conflict
