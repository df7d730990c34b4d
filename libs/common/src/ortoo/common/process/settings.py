"""Reads settings from a TOML file, the environment and the command line into one frozen dataclass.

A settings class is a frozen dataclass whose fields have defaults. Their types are simple (str, int, float, bool, Path,
tuple[str, ...], enums of str, each optionally with `| None`) or are settings classes themselves. A nested field is
`[store] segment_bytes = 1` in TOML and `PREFIX_STORE_SEGMENT_BYTES=1` in the environment. The command line overrides
the environment, which overrides the file, which overrides the default. An unknown key is an error with a suggestion,
because a setting that is silently ignored is hard to find.

A number has a `NumberRange`: `lease_s: Annotated[float, NumberRange(0.1, 3600)] = 15.0`.
A renamed setting has a `FormerName`, which is still accepted. A class lists its removed settings in `REMOVED`; they are
accepted and ignored.
"""

import dataclasses
import difflib
import enum
import operator
import re
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from ortoo.common.errors import Invalid
from ortoo.common.process.masked_url import mask_url

NAME_LENGTH_MAX = 100
"""Maximum length of a setting's name."""
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class LoadedSettings(Generic[T]):
    """Settings, and for each dotted name its origin: "default", "file", "environment" or "command line"."""

    settings: T
    origins: Mapping[str, str]
    former: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The former names that were used, as they were given, and the present names of their settings."""
    ignored: tuple[str, ...] = ()
    """The removed settings that were given, as they were given."""


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One setting; values have the syntax of the environment."""

    name: str
    value: str
    origin: str
    """"default", "file", "environment", "command line", a setting that it follows from, or "operator"."""
    dynamic: bool
    """Whether it can change without a restart."""
    at_next_start: str | None = None
    """The value after the next start, if it differs from the current value."""


@dataclasses.dataclass(frozen=True, slots=True)
class SettingChange:
    """The change of one setting."""

    at_ms: int
    name: str
    previous: str
    current: str
    origin: str
    changed_by: str
    """The operator who changed it; empty = SIGHUP."""


@dataclasses.dataclass(frozen=True)
class NumberRange:
    """The valid range of a number: from `minimum` to `maximum`, both included."""

    minimum: float
    maximum: float


@dataclasses.dataclass(frozen=True)
class FormerName:
    """The dotted name that a setting had before. It is accepted for one version, and each use is logged."""

    name: str


def ranges(cls: Any) -> dict[str, NumberRange]:
    """The range of each setting of a class that has a range, by dotted name."""
    return {name: one for name, one in _annotations(cls) if isinstance(one, NumberRange)}


def former_names(cls: Any) -> dict[str, str]:
    """The present name of each renamed setting of a class, by former name."""
    return {one.name: name for name, one in _annotations(cls) if isinstance(one, FormerName)}


def removed_names(cls: Any) -> frozenset[str]:
    """The dotted names of a class's removed settings. They are accepted for one version, and each use is logged."""
    return getattr(cls, "REMOVED", frozenset())


def check_ranges(settings: Any) -> None:
    """Refuse a setting that is out of its range. Errors: Invalid, naming the setting and its range."""
    for name, allowed in ranges(type(settings)).items():
        value = operator.attrgetter(name)(settings)
        if not allowed.minimum <= value <= allowed.maximum:  # NaN lies in no range
            raise Invalid(f"{value}; expected {allowed.minimum:,} to {allowed.maximum:,}", field=name)


def load(
    cls: type[T],
    *,
    environ_prefix: str,
    environ: Mapping[str, str],
    file: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> LoadedSettings[T]:
    """Read settings of class `cls`.

    `environ_prefix` is like "ORTOO_ENODE_". `overrides` maps dotted names to values; None means not overridden.
    Errors: Invalid, naming the key, what was expected and, for an unknown key, the nearest known one.
    """
    fields = _fields(cls)
    renamed, removed = former_names(cls), removed_names(cls)
    ignored: list[str] = []
    values: dict[str, Any] = {}
    origins = dict.fromkeys(fields, "default")
    former: dict[str, str] = {}

    def take(name: str, raw: Any, origin: str, shown: str) -> None:
        if name in renamed:
            name = former[shown] = renamed[name]
            if origins[name] == origin:
                raise Invalid(f"{shown} is the former name of {name}, which is set too; remove {shown}", field=shown)
        if name in removed:
            ignored.append(shown)
            return
        if name not in fields:
            raise Invalid(
                f"unknown setting {shown} ({origin}){_suggestion(shown, name, fields, environ_prefix)}", field=shown
            )
        values[name] = _convert(raw, fields[name], shown)
        origins[name] = origin

    if file is not None:
        for name, raw in sorted(_flat(_toml(file)), key=lambda one: one[0] in renamed):
            take(name, raw, "file", name)
    by_variable = {environ_prefix + name.replace(".", "_").upper(): name for name in (*fields, *renamed, *removed)}
    for variable, raw in sorted(environ.items(), key=lambda one: by_variable.get(one[0]) in renamed):
        if variable.startswith(environ_prefix):
            name = by_variable.get(variable, variable.removeprefix(environ_prefix).lower())
            take(name, raw, "environment", variable)
    for name, raw in (overrides or {}).items():
        if raw is not None:
            take(name, raw, "command line", name)
    return LoadedSettings(_build(cls, values, ""), origins, former, tuple(ignored))


def flatten(settings: Any) -> dict[str, Any]:
    """The values of all settings, by dotted name."""
    return {name: operator.attrgetter(name)(settings) for name in _fields(type(settings))}


def with_values(settings: T, values: Mapping[str, Any], *, environ_prefix: str = "ORTOO_") -> T:
    """The settings with some values replaced. A value has the setting's type or is a text. Errors: Invalid."""
    fields = _fields(type(settings))
    for name in values:
        if name not in fields:
            suggestion = _suggestion(name, name, fields, environ_prefix)
            raise Invalid(f"there is no such setting{suggestion}", field=name)
    taken = {name: _convert(raw, fields[name], name) for name, raw in values.items()}
    built: T = _build(type(settings), flatten(settings) | taken, "")
    return built


def format_value(value: Any) -> str:
    """A value in the syntax of the environment; passwords in URLs are masked."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(format_value, value))
    text = "" if value is None else str(value.value if isinstance(value, enum.Enum) else value)
    return mask_url(text)


def _fields(cls: Any) -> dict[str, Any]:
    """The annotated type of every setting of a class, by dotted name."""
    hints = typing.get_type_hints(cls, include_extras=True)
    found: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        kind = hints[field.name]
        inner = _fields(kind) if dataclasses.is_dataclass(kind) else {}
        found |= {f"{field.name}.{name}": of for name, of in inner.items()} or {field.name: kind}
    return found


def _annotations(cls: Any) -> Iterator[tuple[str, Any]]:
    """One pair (dotted name, annotation) for each annotation of each setting."""
    return ((name, one) for name, kind in _fields(cls).items() for one in getattr(kind, "__metadata__", ()))


def _build(cls: Any, values: Mapping[str, Any], prefix: str) -> Any:
    hints = typing.get_type_hints(cls)
    arguments = {}
    for field in dataclasses.fields(cls):
        name = prefix + field.name
        if dataclasses.is_dataclass(hints[field.name]):
            arguments[field.name] = _build(hints[field.name], values, name + ".")
        elif name in values:
            arguments[field.name] = values[name]
    return cls(**arguments)


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise Invalid(f"the settings file {file} cannot be read: {error.strerror}", field="file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"the settings file {file} is not TOML: {error}", field="file") from error


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in table.items():
        pairs += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]
    return pairs


def _suggestion(shown: str, name: str, fields: Mapping[str, Any], environ_prefix: str) -> str:
    as_variables = shown.startswith(environ_prefix)
    known = {n.replace(".", "_") if as_variables else n: n for n in fields}
    # A name may come from a request, and the search for a similar one takes long for a long name.
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5) if len(name) <= NAME_LENGTH_MAX else []
    if not near:
        return f"; known are: {', '.join(sorted(fields))}"
    return f"; did you mean {environ_prefix + near[0].upper() if as_variables else near[0]}?"


def _convert(raw: Any, kind: Any, shown: str) -> Any:
    kind = kind.__origin__ if typing.get_origin(kind) is typing.Annotated else kind
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if types.NoneType in options and raw in (None, ""):
        return None
    target = next(option for option in options if option is not types.NoneType)
    try:
        return _parse(raw, target)
    except (ValueError, TypeError) as error:
        expected = (
            " or ".join(m.value for m in target) if _is_enum(target) else getattr(target, "__name__", str(target))
        )
        raise Invalid(f"{shown} is {raw!r}; expected {expected}", field=shown) from error


def _parse(raw: Any, target: Any) -> Any:
    if target is bool:
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if str(raw).lower() not in words:
            raise ValueError(raw)
        return words[str(raw).lower()]
    if target in (int, float) and isinstance(raw, bool):
        raise ValueError(raw)
    if target is int:
        return int(raw, 0) if isinstance(raw, str) else int(raw) if raw == int(raw) else _invalid_value(raw)
    if typing.get_origin(target) is tuple:
        items = re.split("[,;]", raw) if isinstance(raw, str) else raw
        return tuple(str(item).strip() for item in items if str(item).strip())
    if target is str and not isinstance(raw, str):
        return _invalid_value(raw)
    return target(raw)


def _invalid_value(raw: Any) -> Any:
    raise ValueError(raw)


def _is_enum(target: Any) -> bool:
    return isinstance(target, type) and issubclass(target, enum.Enum)
