"""Wheels and archives of sources: their content, and that one can be built from the other."""

import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.install.environments import Environment, metadata_of, run

pytestmark = [pytest.mark.install, pytest.mark.timeout(600)]


def test_every_archive_carries_its_licence(archives: Path) -> None:
    """Each wheel and each archive of sources has the licence and the notices as files with content."""
    wheels, sources = sorted(archives.glob("*.whl")), sorted(archives.glob("*.tar.gz"))
    assert len(wheels) == len(sources) == 11
    for wheel in wheels:
        names = zipfile.ZipFile(wheel).namelist()
        for file in ("LICENSE", "NOTICE"):
            assert any(name.endswith(f".dist-info/licenses/{file}") for name in names), wheel
        assert not any("/tests/" in name or name.startswith("tests/") for name in names), wheel
    for source in sources:
        with tarfile.open(source) as archive:
            members = {member.name.split("/", 1)[1]: member for member in archive.getmembers()}
        for file in ("LICENSE", "NOTICE", "README.md", "PKG-INFO"):
            assert members[file].isfile(), source
            assert members[file].size > 0, source


def test_ortoo_itself_has_no_modules(archives: Path) -> None:
    """The distribution `ortoo` brings only dependencies; its extras are those of the page about the installation."""
    (wheel,) = archives.glob("ortoo-*.whl")
    assert all(name.split("/")[0].endswith(".dist-info") for name in zipfile.ZipFile(wheel).namelist())
    extras = (
        "avro",
        "console",
        "lake",
        "lz4",
        "msgpack",
        "postgresql",
        "pydantic",
        "server",
        "spark",
        "testing",
        "tracing",
        "zstd",
    )
    assert sorted(metadata_of(wheel)["Provides-Extra"]) == list(extras)


def test_sources_give_the_same_wheels(archives: Path, tmp_path: Path) -> None:
    """A wheel that pip builds from an archive of sources has the files of the published wheel."""
    sources = [str(source) for source in archives.glob("*.tar.gz")]
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-cache-dir", "--wheel-dir", str(tmp_path))
    run((sys.executable, "-m", "pip", "wheel", *options, *sources))
    for wheel in archives.glob("*.whl"):
        assert zipfile.ZipFile(wheel).namelist() == zipfile.ZipFile(tmp_path / wheel.name).namelist(), wheel


def test_an_index_accepts_the_archives(archives: Path, tmp_path: Path) -> None:
    """`twine check` finds nothing wrong in the metadata and in the descriptions."""
    environment = Environment(tmp_path / "twine")
    environment.install("twine", archives=archives, pins={})
    files = [str(file) for file in archives.iterdir()]
    said = environment.run("twine", "check", "--strict", *files).stdout
    assert said.count("PASSED") == len(files), said
