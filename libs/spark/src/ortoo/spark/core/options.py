"""The options of reads and writes: parsed once, before any task runs, into plain values.

Spark hands every option over as text and forgets upper and lower case. Where an option means what one of the Kafka
source means, it has that one's name. An option that nobody knows is an error: one that is ignored costs a night.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ortoo.common.errors import Invalid

SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname", "outputmode", "numrows", "truncate"})
"""Options that Spark itself puts among ours."""
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
    """Takes options by name, checks their type, and at the end complains about those that nobody took."""

    def __init__(self, options: Mapping[str, str], known: Iterable[str]) -> None:
        """`options` as Spark gives them; `known` are the names as documents write them."""
        self._values = {name.lower(): value for name, value in options.items()}
        self._known = {name.lower(): name for name in known}
        for name in self._values:
            if name not in self._known and name not in SPARKS_OWN:
                raise Invalid(f"unknown option{did_you_mean(name, self._known.values())}", field=name)

    def given(self, *names: str) -> list[str]:
        """Those of `names` that were given, and not empty."""
        return [name for name in names if self.text(name)]

    def at_most_one(self, *names: str) -> None:
        """Errors: Invalid when two of `names` are given: one of them would be ignored."""
        if len(given := self.given(*names)) > 1:
            raise Invalid(f"{' and '.join(given)} are given; give one of them", field=given[0])

    def only_with(self, name: str, allowed: bool, what: str) -> None:
        """Errors: Invalid when `name` is given where it would change nothing; `what` says with what it does."""
        if not allowed and self.given(name):
            raise Invalid(f"it changes nothing here: it is for {what}; leave it out", field=name)

    def text(self, name: str, default: str = "") -> str:
        """A text; `default` when it is absent or empty."""
        return str(self._values.get(name.lower(), default)).strip() or default

    def choice(self, name: str, default: str, *allowed: str) -> str:
        """One of a few words."""
        value = self.text(name, default)
        for word in allowed:
            if value.lower() == word.lower():
                return word
        raise Invalid(f"{value!r}; expected {' or '.join(allowed)}", field=name)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        return self.choice(name, "true" if default else "false", "true", "false") == "true"

    def number(self, name: str, default: int = 0, *, low: int = 0) -> int:
        """A whole number from `low` on."""
        value = self.text(name, str(default))
        if not re.fullmatch(r"-?\d+", value) or int(value) < low:
            raise Invalid(f"{value!r}; expected a whole number from {low} on", field=name)
        return int(value)

    def duration_ms(self, name: str, default_ms: int) -> int:
        """Milliseconds, or a number with one of Spark's units: 500ms, 30s, 15min, 2h, 1 day."""
        return self._in_units(name, default_ms, _TIME_UNITS_MS, "milliseconds, or a time such as 30s, 15min or 2h")

    def size_bytes(self, name: str, default: int = 0) -> int:
        """Bytes, or a number with one of Spark's units, powers of 1,024: 64k, 512mb, 1g."""
        return self._in_units(name, default, _SIZE_UNITS, "bytes, or a size such as 64k, 512m or 1g")

    def _in_units(self, name: str, default: int, units: Mapping[str, int], expected: str) -> int:
        value = self.text(name, str(default))
        match = re.fullmatch(r"(\d+)\s*([a-z]*)", value.lower())
        if match is None or match[2] not in units:
            raise Invalid(f"{value!r}; expected {expected}", field=name)
        return int(match[1]) * units[match[2]]

    def names(self, name: str) -> tuple[str, ...]:
        """Names separated by commas."""
        return tuple(word.strip() for word in self.text(name).split(",") if word.strip())

    def json(self, name: str) -> Any:
        """A JSON value; None when the option is absent."""
        value = self.text(name)
        if not value:
            return None
        try:
            return json.loads(value)
        except ValueError as error:
            raise Invalid(f"this is no JSON: {error}: {value[:120]!r}", field=name) from None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """What somebody probably meant, as the end of a sentence: "; did you mean x?" or "; known are: x, y"."""
    names = list(known)
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[near[0]]}?" if near else f"; known are: {', '.join(sorted(names))}"
