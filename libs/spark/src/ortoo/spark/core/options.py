"""The options of reads and writes, parsed into plain values before any task runs.

Spark passes options as text and ignores upper and lower case. Options that mean the same as an option of Spark's Kafka
source have the same name. An unknown option is an error, because users would notice an ignored option late.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ortoo.common.errors import Invalid

SPARK_OPTIONS: Final = frozenset({"path", "checkpointlocation", "queryname", "outputmode", "numrows", "truncate"})
"""Options that Spark itself adds."""
_TIME_UNITS_MS: Final = {"": 1} | {
    word: factor
    for words, factor in (
        ("ms millisecond milliseconds", 1), ("s sec second seconds", 1_000), ("m min minute minutes", 60_000),
        ("h hour hours", 3_600_000), ("d day days", 86_400_000),
    )
    for word in words.split()
}  # fmt: skip
_SIZE_UNITS: Final = {"": 1, "b": 1} | {
    unit + rest: 1 << 10 * (power + 1) for power, unit in enumerate("kmgtp") for rest in ("", "b", "ib")
}


class OptionReader:
    """Reads options by name, checks their types, and rejects unknown ones."""

    def __init__(self, options: Mapping[str, str], known: Iterable[str]) -> None:
        """`options` come from Spark; `known` are the documented names."""
        self._values = {name.lower(): value for name, value in options.items()}
        self._known = {name.lower(): name for name in known}
        for name in self._values:
            if name not in self._known and name not in SPARK_OPTIONS:
                raise Invalid(f"unknown option{suggestion(name, self._known.values())}", field=name)

    def given(self, *names: str) -> list[str]:
        """Those of `names` whose options have a value that is not empty."""
        return [name for name in names if self.text(name)]

    def at_most_one(self, *names: str) -> None:
        """Refuse options if several of `names` are given, because only one would have an effect. Errors: Invalid."""
        if len(given := self.given(*names)) > 1:
            raise Invalid(f"{' and '.join(given)} are given; expected only one of them", field=given[0])

    def require(self, name: str, allowed: bool, context: str) -> None:
        """Refuse the option `name` if it is given and not `allowed`. Errors: Invalid.

        `context` is a part of the error's text: the other options with which `name` has an effect.
        """
        if not allowed and self.given(name):
            raise Invalid(f"this option has an effect only with {context}; remove it", field=name)

    def text(self, name: str, default: str = "") -> str:
        """The text of an option; `default` if the option is absent or empty."""
        return str(self._values.get(name.lower(), default)).strip() or default

    def choice(self, name: str, default: str, *allowed: str) -> str:
        """The value of an option, which must be one of `allowed`. Errors: Invalid."""
        value = self.text(name, default)
        for word in allowed:
            if value.lower() == word.lower():
                return word
        raise Invalid(f"{value!r}; expected {' or '.join(allowed)}", field=name)

    def flag(self, name: str, default: bool) -> bool:
        """The value of an option, which must be true or false. Errors: Invalid."""
        return self.choice(name, "true" if default else "false", "true", "false") == "true"

    def number(self, name: str, default: int = 0, *, low: int = 0) -> int:
        """The value of an option, which must be a whole number of at least `low`. Errors: Invalid."""
        value = self.text(name, str(default))
        if not re.fullmatch(r"-?\d+", value) or int(value) < low:
            raise Invalid(f"{value!r}; expected a whole number of at least {low}", field=name)
        return int(value)

    def duration_ms(self, name: str, default_ms: int) -> int:
        """The value of an option in milliseconds. It may have a unit of Spark, as in 500ms, 30s, 15min, 2h or 1 day."""
        return self._in_units(name, default_ms, _TIME_UNITS_MS, "milliseconds, or a time such as 30s, 15min or 2h")

    def size_bytes(self, name: str, default: int = 0) -> int:
        """The value of an option in bytes. It may have a unit of Spark (powers of 1,024), as in 64k, 512mb or 1g."""
        return self._in_units(name, default, _SIZE_UNITS, "bytes, or a size such as 64k, 512m or 1g")

    def _in_units(self, name: str, default: int, units: Mapping[str, int], expected: str) -> int:
        value = self.text(name, str(default))
        match = re.fullmatch(r"(\d+)\s*([a-z]*)", value.lower())
        if match is None or match[2] not in units:
            raise Invalid(f"{value!r}; expected {expected}", field=name)
        return int(match[1]) * units[match[2]]

    def names(self, name: str) -> tuple[str, ...]:
        """The names in an option's value, which are separated by commas."""
        return tuple(word.strip() for word in self.text(name).split(",") if word.strip())

    def json(self, name: str) -> Any:
        """The value of an option, parsed from JSON; None if the option is absent."""
        value = self.text(name)
        if not value:
            return None
        try:
            return json.loads(value)
        except ValueError as error:
            raise Invalid(f"invalid JSON ({error}): {value[:120]!r}", field=name) from None


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of an error's text about the unknown name `word`: a similar name of `known`, or else all known names."""
    names = list(known)
    by_lower = {name.lower(): name for name in names}
    matches = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[matches[0]]}?" if matches else f"; expected one of {', '.join(sorted(names))}"
