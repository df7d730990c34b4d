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


class OptionReader:
    """Takes options by name, checks their type, and at the end complains about those that nobody took."""

    def __init__(self, options: Mapping[str, str], known: Iterable[str]) -> None:
        """`options` as Spark gives them; `known` are the names as documents write them."""
        self._values = {name.lower(): value for name, value in options.items()}
        self._known = {name.lower(): name for name in known}
        for name in self._values:
            if name not in self._known and name not in SPARKS_OWN:
                raise Invalid(f"unknown option{did_you_mean(name, self._known.values())}", field=name)

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
        """Milliseconds, or a number with a unit: 500ms, 30s, 15m, 2h."""
        value = self.text(name, str(default_ms))
        match = re.fullmatch(r"(\d+)\s*(ms|s|m|h|)", value)
        if match is None:
            raise Invalid(f"{value!r}; expected milliseconds, or a time such as 30s or 15m", field=name)
        return int(match[1]) * {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}[match[2]]

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

    def addresses(self) -> tuple[str, ...]:
        """Where the cluster is. Errors: Invalid when that is not said or is no host:port."""
        addresses = self.names("address")
        if not addresses:
            raise Invalid(
                'where is the cluster? Give .option("address", "host:8081"), or set ORTOO_ADDRESS', field="address"
            )
        for address in addresses:
            host, _, port = address.rpartition(":")
            if not (host and port.isdigit() and int(port) < 65536):
                raise Invalid(f"{address!r} is not host:port, such as localhost:8081", field="address")
        return addresses


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """What somebody probably meant, as the end of a sentence: "; did you mean x?" or "; known are: x, y"."""
    names = list(known)
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[near[0]]}?" if near else f"; known are: {', '.join(sorted(names))}"
