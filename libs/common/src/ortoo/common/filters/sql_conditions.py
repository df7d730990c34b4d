"""SQL conditions over the properties of messages, evaluated for whole batches at once.

A condition is true, false or unknown for a message, as in SQL. Each operator costs a few array operations. Only general
LIKE patterns, order between texts, and numbers in scientific notation examine values one by one.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import add, eq, ge, gt, le, lt, mul, ne, sub, truediv
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ortoo.common.arrays.opened_batch import Mask, OpenedBatch
from ortoo.common.filters.property_values import Float64s, PropertyValues

TAG_NAME: Final = "TAGS"
"""The name of the tag in an expression."""
Part = tuple[str | None, ...]
"""The part of a pattern between two `%`: its characters, None for any single character."""


@dataclass(frozen=True, slots=True)
class Property:
    """The value of the property with this name; the name TAGS means the message's tag."""

    name: str


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A calculation with two values; `operator` is one of + - * / %. A division by zero is NULL."""

    operator: str
    left: "Value"
    right: "Value"


Value = Property | Arithmetic | str | float | bool | None
"""Literals stand for themselves; None is NULL."""


class ConditionResult(NamedTuple):
    """For each row whether a condition is true and whether it is false; neither means unknown."""

    true: Mask
    false: Mask


class BatchRows:
    """The messages of one batch; each property is looked up once."""

    def __init__(self, opened: OpenedBatch) -> None:
        """Properties are looked up at their first use."""
        self.count = opened.count
        self._opened = opened
        self._values: dict[str, PropertyValues] = {}
        self._numbers: dict[str, tuple[Float64s, Mask]] = {}

    def values(self, of: Property) -> PropertyValues:
        """The texts of a property, or the tags."""
        values = self._values.get(of.name)
        if values is None:
            if of.name == TAG_NAME:
                values = PropertyValues.of_tag(self._opened)
            else:
                values = PropertyValues.of_property(self._opened, of.name)
            self._values[of.name] = values
        return values

    def numbers(self, value: Value) -> tuple[Float64s, Mask]:
        """A value as numbers, and for each row whether the value is a number."""
        if isinstance(value, Property):
            if value.name not in self._numbers:
                self._numbers[value.name] = self.values(value).numbers()
            return self._numbers[value.name]
        if isinstance(value, Arithmetic):
            (a, a_known), (b, b_known) = self.numbers(value.left), self.numbers(value.right)
            with np.errstate(all="ignore"):
                result: Float64s = _CALCULATE[value.operator][1](a, b)
            known = a_known & b_known & np.isfinite(result)
            return np.where(known, result, 0.0), known
        assert value is None or isinstance(value, float), "texts and truth values are refused when compiling"
        return np.full(self.count, 0.0 if value is None else value), np.full(self.count, value is not None)


Condition = Callable[[BatchRows], ConditionResult]
"""A function below with all of its arguments bound except the last."""


def all_of(parts: Sequence[Condition], rows: BatchRows) -> ConditionResult:
    """AND of several conditions."""
    return reduce(lambda a, b: ConditionResult(a.true & b.true, a.false | b.false), (part(rows) for part in parts))


def any_of(parts: Sequence[Condition], rows: BatchRows) -> ConditionResult:
    """OR of several conditions."""
    return reduce(lambda a, b: ConditionResult(a.true | b.true, a.false & b.false), (part(rows) for part in parts))


def negate(of: Condition, rows: BatchRows) -> ConditionResult:
    """NOT; the opposite of unknown is unknown."""
    verdict = of(rows)
    return ConditionResult(verdict.false, verdict.true)


def constant(value: bool | None, rows: BatchRows) -> ConditionResult:
    """True, False or unknown for every message."""
    return ConditionResult(np.full(rows.count, value is True), np.full(rows.count, value is False))


def is_null(of: Property, rows: BatchRows) -> ConditionResult:
    """Whether the property is absent; never unknown."""
    present = rows.values(of).present
    return ConditionResult(~present, present)


def one_of(of: Property, texts: tuple[str, ...], rows: BatchRows) -> ConditionResult:
    """Whether the property is one of the texts."""
    values = rows.values(of)
    return _result(values.one_of(texts), values.present)


def truth(of: Property, rows: BatchRows) -> ConditionResult:
    """Whether the property is "true", in upper or lower case; unknown for texts other than "true" and "false"."""
    values = rows.values(of)
    there = np.flatnonzero(values.present)
    texts = [text.lower() for text in values.texts(there)]
    return ConditionResult(
        _mask(rows, there, [text == b"true" for text in texts]),
        _mask(rows, there, [text == b"false" for text in texts]),
    )


def is_truth(of: Property, what: bool, rows: BatchRows) -> ConditionResult:
    """Whether the property is "true" (or "false", if `what` is False). Never unknown: other values give false."""
    found = truth(of, rows)
    hits = found.true if what else found.false
    return ConditionResult(hits, ~hits)


def text_order(operator: str, of: Property, bound: str, rows: BatchRows) -> ConditionResult:
    """Compares the property with `bound` by code points, which is the order of their UTF-8 bytes."""
    values, compare, limit = rows.values(of), COMPARE[operator], bound.encode("utf-8", "surrogatepass")
    there = np.flatnonzero(values.present)
    return _result(_mask(rows, there, [compare(text, limit) for text in values.texts(there)]), values.present)


def same_text(of: Property, other: Property, rows: BatchRows) -> ConditionResult:
    """Whether two properties are the same text; unknown unless both are present."""
    one, another = rows.values(of), rows.values(other)
    both = one.present & another.present
    there = np.flatnonzero(both)
    return _result(_mask(rows, there, list(map(eq, one.texts(there), another.texts(there)))), both)


def number_order(operator: str, left: Value, right: Value, rows: BatchRows) -> ConditionResult:
    """Compares two numbers; unknown unless both are numbers."""
    (a, a_known), (b, b_known) = rows.numbers(left), rows.numbers(right)
    return _result(COMPARE[operator](a, b), a_known & b_known)


def like(of: Property, parts: tuple[Part, ...], rows: BatchRows) -> ConditionResult:
    """Whether the property matches a LIKE pattern; `parts` is the pattern cut at each `%`, and None stands for `_`."""
    values = rows.values(of)
    return _result(_like(values, parts, rows), values.present)


def calculate(operator: str, left: float, right: float) -> float | None:
    """Calculate with two numbers; None if there is no finite result."""
    try:
        result = _CALCULATE[operator][0](left, right)
    except (ZeroDivisionError, OverflowError, ValueError):
        return None
    return result if abs(result) < float("inf") else None


def _result(hits: Mask, known: Mask) -> ConditionResult:
    return ConditionResult(hits & known, ~hits & known)


def _mask(rows: BatchRows, there: NDArray[np.intp], hits: list[bool]) -> Mask:
    """A mask over all rows: `hits` for the rows `there`, False for all others."""
    mask = np.zeros(rows.count, np.bool_)
    mask[there] = hits
    return mask


def _like(values: PropertyValues, parts: tuple[Part, ...], rows: BatchRows) -> Mask:
    if not any(None in part for part in parts):
        texts = ["".join(part) for part in parts]  # type: ignore[arg-type]
        if len(texts) == 1:
            return values.one_of((texts[0],))
        if len(texts) == 2 and not texts[1]:
            return values.has_edge(texts[0], at_end=False)
        if len(texts) == 2 and not texts[0]:
            return values.has_edge(texts[1], at_end=True)
    there = np.flatnonzero(values.present)
    return _mask(rows, there, [_matches(parts, text.decode("utf-8", "surrogatepass")) for text in values.texts(there)])


def _matches(parts: Sequence[Part], text: str) -> bool:
    """Whether `text` consists of `parts` in this order, with any texts between them."""
    first, last = parts[0], parts[-1]
    end = len(text) - len(last)
    if len(parts) == 1:
        return end == 0 and _compiled(first).match(text) is not None
    if end < len(first) or not _compiled(first).match(text) or not _compiled(last).match(text, end):
        return False
    at = len(first)
    for part in parts[1:-1]:
        found = _compiled(part).search(text, at, end)
        if found is None:
            return False
        at = found.end()
    return True


@lru_cache(maxsize=1024)
def _compiled(part: Part) -> re.Pattern[str]:
    return re.compile("".join("." if sign is None else re.escape(sign) for sign in part), re.DOTALL)


COMPARE: Final[dict[str, Callable[..., Any]]] = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
"""Compares two numbers, two texts by code point, or two arrays."""
_CALCULATE: Final[dict[str, tuple[Callable[..., float], Callable[..., Float64s]]]] = {
    "+": (add, np.add),
    "-": (sub, np.subtract),
    "*": (mul, np.multiply),
    "/": (truediv, np.divide),
    "%": (math.fmod, np.fmod),
}
"""Calculates with two numbers, and with two arrays."""
