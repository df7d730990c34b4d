"""The packages are built once, and installed once with the lowest and once with the newest versions of libraries."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.install.environments import Environment, build_archives, has_lowest_wheels, lowest_versions

SERVER = "ortoo[server,testing,pydantic,zstd,lz4]"


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels and the archives of sources of all distributions."""
    return build_archives(tmp_path_factory.mktemp("archives") / "dist")


@pytest.fixture(scope="session", params=["lowest", "newest"])
def versions(request: pytest.FixtureRequest) -> str:
    """Which versions of libraries the application's environment has."""
    if request.param == "lowest" and not has_lowest_wheels():
        pytest.skip("THE LOWEST VERSIONS HAVE NO WHEELS for this Python; run `make install-tests` with Python 3.11")
    return str(request.param)


@pytest.fixture(scope="session")
def application(versions: str, archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with `pip install ortoo` alone."""
    environment = Environment(tmp_path_factory.mktemp(versions) / "application")
    pins = lowest_versions(archives, "ortoo") if versions == "lowest" else {}
    environment.install("ortoo", archives=archives, pins=pins)
    return environment


@pytest.fixture(scope="session")
def servers(versions: str, archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the servers: the newest libraries for the oldest clients, and the reverse."""
    environment = Environment(tmp_path_factory.mktemp(versions) / "servers")
    pins = lowest_versions(archives, SERVER) if versions == "newest" and has_lowest_wheels() else {}
    environment.install(SERVER, archives=archives, pins=pins)
    return environment


@pytest.fixture(scope="session")
def address(servers: Environment) -> Iterator[str]:
    """The address of a running cluster."""
    with servers.cluster() as address:
        yield address
