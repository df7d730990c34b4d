"""Subscriptions by SQL92 conditions: compiled once, applied to whole batches before any body is touched.

    wanted = SqlFilter.compile("region = 'EU' AND amount > 100")
    rows = wanted.select(opened)          # None = all rows; otherwise the int32 rows that match, maybe none

A condition is true, false or unknown for a message, as SQL has it; only true matches. The work is a few array
operations for each operator; only LIKE in its general form, order between texts, and numbers in scientific notation
look at values one by one.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import NamedTuple

import numpy as np

from ortoo.common.arrays.opened_batch import Int32s, Mask, OpenedBatch
from ortoo.common.filters.property_values import Float64s, PropertyValues
from ortoo.common.filters.sql_expression import (
    COMPARE,
    TAG_NAME,
    AllOf,
    AnyOf,
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    IsNull,
    IsTruth,
    Like,
    Not,
    OneOf,
    Part,
    Property,
    Truth,
    Value,
    parse,
)


class Verdict(NamedTuple):
    """For each row whether a condition is true and whether it is false; neither means unknown."""

    true: Mask
    false: Mask


class SqlFilter:
    """Which messages a subscription wants."""

    __slots__ = ("_condition", "expression")

    def __init__(self, expression: str, condition: Condition) -> None:
        """Want the messages for which `condition` is true."""
        self.expression = expression
        self._condition = condition

    @classmethod
    def compile(cls, expression: str, field: str = "sql_expression") -> "SqlFilter":
        """Read an expression. Errors: Invalid, naming `field`, saying what is wrong."""
        return cls(expression, parse(expression, field))

    @property
    def expressions(self) -> tuple[str, str]:
        """Its own."""
        return "", self.expression

    def select(self, opened: OpenedBatch) -> Int32s | None:
        """Return the rows that match, in order; None when all do."""
        hits = _Evaluation(opened).of(self._condition).true
        if hits.all():
            return None
        return np.flatnonzero(hits).astype("<i4")


class _Evaluation:
    """One condition over one batch; each property is looked up once."""

    def __init__(self, opened: OpenedBatch) -> None:
        self._opened = opened
        self._values: dict[str, PropertyValues] = {}
        self._numbers: dict[str, tuple[Float64s, Mask]] = {}

    def of(self, condition: Condition) -> Verdict:
        if isinstance(condition, AllOf):
            return reduce(lambda a, b: Verdict(a.true & b.true, a.false | b.false), map(self.of, condition.parts))
        if isinstance(condition, AnyOf):
            return reduce(lambda a, b: Verdict(a.true | b.true, a.false & b.false), map(self.of, condition.parts))
        if isinstance(condition, Not):
            verdict = self.of(condition.of)
            return Verdict(verdict.false, verdict.true)
        if isinstance(condition, Constant):
            rows = self._opened.count
            return Verdict(np.full(rows, condition.value is True), np.full(rows, condition.value is False))
        if isinstance(condition, Comparison):
            return self._comparison(condition)
        values = self._of_property(condition.of)
        if isinstance(condition, IsNull):
            return Verdict(~values.present, values.present)
        if isinstance(condition, OneOf):
            return _known(values.one_of(condition.texts), values.present)
        if isinstance(condition, Truth):
            return _truth(values)
        if isinstance(condition, IsTruth):
            truth = _truth(values)
            hits = truth.true if condition.what else truth.false
            return Verdict(hits, ~hits)
        return _known(_like(condition, values), values.present)

    def _comparison(self, condition: Comparison) -> Verdict:
        left, right = condition.left, condition.right
        if isinstance(left, Property) and isinstance(right, str):
            return self._order(condition.operator, left, right)
        if isinstance(left, Property) and isinstance(right, Property) and condition.operator in ("=", "<>"):
            return self._same(condition.operator, left, right)
        (a, a_known), (b, b_known) = self._number(left), self._number(right)
        hits: Mask = COMPARE[condition.operator](a, b)
        return _known(hits, a_known & b_known)

    def _order(self, sign: str, left: Property, right: str) -> Verdict:
        """Order between texts is that of their code points, which is that of their UTF-8 bytes."""
        values, bound = self._of_property(left), right.encode("utf-8", "surrogatepass")
        hits = np.zeros(self._opened.count, np.bool_)
        rows = np.flatnonzero(values.present)
        if len(rows):
            compare = COMPARE[sign]
            hits[rows] = [compare(text, bound) for text in values.texts(rows)]
        return _known(hits, values.present)

    def _same(self, sign: str, left: Property, right: Property) -> Verdict:
        a, b = self._of_property(left), self._of_property(right)
        both = a.present & b.present
        hits = np.zeros(self._opened.count, np.bool_)
        rows = np.flatnonzero(both)
        if len(rows):
            hits[rows] = [one == other for one, other in zip(a.texts(rows), b.texts(rows), strict=True)]
        return _known(hits if sign == "=" else ~hits, both)

    def _number(self, value: Value) -> tuple[Float64s, Mask]:
        rows = self._opened.count
        if isinstance(value, Property):
            if value.name not in self._numbers:
                self._numbers[value.name] = self._of_property(value).numbers()
            return self._numbers[value.name]
        if isinstance(value, Arithmetic):
            (a, a_known), (b, b_known) = self._number(value.left), self._number(value.right)
            with np.errstate(all="ignore"):
                result: Float64s = _CALCULATE[value.operator](a, b)
            known = a_known & b_known & np.isfinite(result)
            return np.where(known, result, 0.0), known
        assert value is None or isinstance(value, float), "texts and truth values are refused when compiling"
        return np.full(rows, 0.0 if value is None else value), np.full(rows, value is not None)

    def _of_property(self, of: Property) -> PropertyValues:
        values = self._values.get(of.name)
        if values is None:
            if of.name == TAG_NAME:
                values = PropertyValues.of_tag(self._opened)
            else:
                values = PropertyValues.of_property(self._opened, of.name)
            self._values[of.name] = values
        return values


def _known(hits: Mask, known: Mask) -> Verdict:
    return Verdict(hits & known, ~hits & known)


def _truth(values: PropertyValues) -> Verdict:
    rows = np.flatnonzero(values.present)
    true, false = np.zeros(len(values.present), np.bool_), np.zeros(len(values.present), np.bool_)
    if len(rows):
        texts = [text.lower() for text in values.texts(rows)]
        true[rows] = [text == b"true" for text in texts]
        false[rows] = [text == b"false" for text in texts]
    return Verdict(true, false)


def _like(condition: Like, values: PropertyValues) -> Mask:
    parts = condition.parts
    if not any(None in part for part in parts):
        texts = ["".join(part) for part in parts]  # type: ignore[arg-type]
        if len(texts) == 1:
            return values.one_of((texts[0],))
        if len(texts) == 2 and not texts[1]:
            return values.begins_with(texts[0])
        if len(texts) == 2 and not texts[0]:
            return values.ends_with(texts[1])
    hits = np.zeros(len(values.present), np.bool_)
    rows = np.flatnonzero(values.present)
    if len(rows):
        hits[rows] = [matches(parts, text.decode("utf-8", "surrogatepass")) for text in values.texts(rows)]
    return hits


_CALCULATE: dict[str, Callable[..., Float64s]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
}


def matches(parts: Sequence[Part], text: str) -> bool:
    """Whether `text` is `parts` with any texts between them."""
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
