"""Settings come from file, environment and command line, and nothing is silently ignored."""

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import pytest

from ortoo.common.errors import Invalid
from ortoo.common.process.settings import FormerName, LoadedSettings, former_names, load


class Mode(enum.StrEnum):
    SYNC = "sync"
    ASYNC = "async"


@dataclass(frozen=True)
class Store:
    segment_bytes: int = 1024
    mode: Mode = Mode.SYNC


@dataclass(frozen=True)
class Example:
    listen_address: str = "127.0.0.1:0"
    data_dir: Path = Path("data")
    enodes: tuple[str, ...] = ()
    redis_url: str | None = None
    ratio: float = 0.5
    strict: bool = True
    store: Store = field(default_factory=Store)


def read(environ: dict[str, str] | None = None, file: Path | None = None, **overrides: object) -> Example:
    return load(Example, environ_prefix="EX_", environ=environ or {}, file=file, overrides=overrides).settings


def test_nothing_given_means_defaults() -> None:
    """A settings class without sources is its defaults."""
    assert read() == Example()


def test_command_line_beats_environment_beats_file(tmp_path: Path) -> None:
    """The source with the higher priority wins, and the origin of each value is known."""
    file = tmp_path / "x.toml"
    file.write_text('listen_address = "file:1"\nratio = 0.1\nstrict = false\n[store]\nsegment_bytes = 7\n')
    loaded = load(
        Example,
        environ_prefix="EX_",
        environ={"EX_RATIO": "0.2", "EX_LISTEN_ADDRESS": "env:1", "UNRELATED": "x"},
        file=file,
        overrides={"listen_address": "cli:1", "redis_url": None},
    )
    assert loaded.settings == Example(listen_address="cli:1", ratio=0.2, strict=False, store=Store(segment_bytes=7))
    assert loaded.origins["listen_address"] == "command line"
    assert loaded.origins["ratio"] == "environment"
    assert loaded.origins["store.segment_bytes"] == "file"
    assert loaded.origins["store.mode"] == "default"


def test_values_are_converted_to_the_field_type() -> None:
    """Text from the environment is converted to the field's type."""
    got = read({"EX_ENODES": "a, b,", "EX_STORE_SEGMENT_BYTES": "0x10", "EX_STORE_MODE": "async", "EX_DATA_DIR": "/d"})
    assert got == Example(enodes=("a", "b"), store=Store(16, Mode.ASYNC), data_dir=Path("/d"))
    assert read({"EX_REDIS_URL": ""}).redis_url is None


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"EX_LISTEN_ADRESS": "x"}, "did you mean EX_LISTEN_ADDRESS?"),
        ({"EX_STORE_SEGMENT_BITS": "1"}, "did you mean EX_STORE_SEGMENT_BYTES?"),
        ({"EX_ZZZZ": "1"}, "known are: data_dir"),
        ({"EX_STRICT": "perhaps"}, "expected bool"),
        ({"EX_RATIO": "half"}, "expected float"),
        ({"EX_STORE_SEGMENT_BYTES": "many"}, "expected int"),
        ({"EX_STORE_MODE": "fast"}, "expected sync or async"),
    ],
)
def test_wrong_variables_are_named(environ: dict[str, str], words: str) -> None:
    """An unknown or unreadable variable is an error that names it and helps."""
    with pytest.raises(Invalid, match=words.replace("?", r"\?")) as caught:
        read(environ)
    assert caught.value.field == next(iter(environ))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("listen_adress = 1", "did you mean listen_address"),
        ("[store]\nsegments = 1", "did you mean store.segment_bytes"),
        ("listen_address = 5", "expected str"),
        ("strict = 2", "expected bool"),
        ("[store]\nsegment_bytes = true", "expected int"),
        ("[store]\nsegment_bytes = 1.5", "expected int"),
        ("= x", "not TOML"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, text: str, words: str) -> None:
    """A mistake in the file is an error that names the key or the file."""
    file = tmp_path / "x.toml"
    file.write_text(text)
    with pytest.raises(Invalid, match=words):
        read(file=file)


def test_missing_file_is_named(tmp_path: Path) -> None:
    """A settings file that was given must exist."""
    with pytest.raises(Invalid, match="cannot be read"):
        read(file=tmp_path / "absent.toml")


@dataclass(frozen=True)
class Limits:
    size_bytes: Annotated[int, FormerName("limits.bytes")] = 1


@dataclass(frozen=True)
class Renamed:
    replica_address: Annotated[str, FormerName("member_address")] = ""
    limits: Limits = field(default_factory=Limits)


def read_renamed(environ: dict[str, str], file: Path | None = None) -> LoadedSettings[Renamed]:
    return load(Renamed, environ_prefix="EX_", environ=environ, file=file)


def test_a_former_name_has_effect_and_is_reported(tmp_path: Path) -> None:
    """Settings files and environments of the previous version keep their meaning, nested settings too."""
    file = tmp_path / "x.toml"
    file.write_text("[limits]\nbytes = 7\n")
    loaded = read_renamed({"EX_MEMBER_ADDRESS": "a:1"}, file)
    assert loaded.settings == Renamed("a:1", Limits(7))
    assert loaded.origins == {"replica_address": "environment", "limits.size_bytes": "file"}
    assert loaded.former == {"limits.bytes": "limits.size_bytes", "EX_MEMBER_ADDRESS": "replica_address"}
    assert former_names(Renamed) == {"member_address": "replica_address", "limits.bytes": "limits.size_bytes"}


def test_a_removed_setting_is_ignored_and_reported(tmp_path: Path) -> None:
    """Settings files and environments of the previous version still start a process."""

    @dataclass(frozen=True)
    class Fewer:
        REMOVED: ClassVar[frozenset[str]] = frozenset({"former", "limits.former"})
        limits: Limits = field(default_factory=Limits)

    file = tmp_path / "x.toml"
    file.write_text("[limits]\nformer = 7\n")
    loaded = load(Fewer, environ_prefix="EX_", environ={"EX_FORMER": "yes"}, file=file)
    assert loaded.settings == Fewer()
    assert loaded.ignored == ("limits.former", "EX_FORMER")


def test_a_present_name_has_precedence_by_its_source(tmp_path: Path) -> None:
    """The environment overrides the file, also by a former name."""
    file = tmp_path / "x.toml"
    file.write_text('replica_address = "file:1"\n')
    assert read_renamed({"EX_MEMBER_ADDRESS": "env:1"}, file).settings.replica_address == "env:1"
    assert not read_renamed({"EX_REPLICA_ADDRESS": "env:1"}, file).former


@pytest.mark.parametrize(
    "names", [("EX_MEMBER_ADDRESS", "EX_REPLICA_ADDRESS"), ("EX_LIMITS_BYTES", "EX_LIMITS_SIZE_BYTES")]
)
@pytest.mark.parametrize("order", [1, -1])
def test_both_names_in_one_source_are_refused(names: tuple[str, str], order: int) -> None:
    """Neither of two values may be dropped silently."""
    with pytest.raises(Invalid, match=f"{names[0]} is the former name of .*remove {names[0]}"):
        read_renamed(dict.fromkeys(names[::order], "1"))
