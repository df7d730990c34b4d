"""Subscriptions by SQL92 conditions over messages' properties: compiled once, applied before any body is read.

    wanted = SqlFilter.compile("region = 'EU' AND (amount > 100 OR TAGS IN ('vip', 'gold'))")
    rows = wanted.select(opened)          # None = all rows

A name is a property's name, and `TAGS` is the message's tag. Names that are not SQL names stand in double quotes. Every
value is text. Compared with a number, a value is read as a number; compared with TRUE or FALSE, as a truth value. Text
that cannot be read in this way counts as NULL. docs/filters.md has the rules.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from ortoo.common.arrays.opened_batch import Int32s, OpenedBatch
from ortoo.common.errors import Invalid
from ortoo.common.filters.property_values import NUMBER
from ortoo.common.filters.sql_conditions import (
    COMPARE,
    Arithmetic,
    BatchRows,
    Condition,
    Part,
    Property,
    Value,
    all_of,
    any_of,
    calculate,
    constant,
    is_null,
    is_truth,
    like,
    negate,
    number_order,
    one_of,
    same_text,
    text_order,
    truth,
)

if TYPE_CHECKING:
    from sqlglot.expressions import Expression

EXPRESSION_LENGTH_MAX: Final = 8 << 10
"""Maximum number of characters of an expression."""
NODES_MAX: Final = 1_000
"""Maximum number of names, literals and operators of an expression."""
DEPTH_MAX: Final = 40
"""Maximum depth of an expression."""
PATTERN_LENGTH_MAX: Final = 256
"""Maximum number of characters of a pattern."""


class SqlFilter:
    """Selects the messages for which a condition is true, not false and not unknown."""

    __slots__ = ("_condition", "expression")

    def __init__(self, expression: str, condition: Condition) -> None:
        """Select the messages for which `condition` is true."""
        self.expression = expression
        self._condition = condition

    @classmethod
    def compile(cls, expression: str, field: str = "sql_expression") -> "SqlFilter":
        """Read an expression. Errors: Invalid, naming `field`, the mistake and what is allowed."""
        if len(expression) > EXPRESSION_LENGTH_MAX:
            raise Invalid(f"{len(expression)} characters; at most {EXPRESSION_LENGTH_MAX} are allowed", field=field)
        if not expression.strip():
            raise Invalid("the expression is empty; write a condition such as amount > 100", field=field)
        # Imported at its first use, because it costs 0.1 s and most snodes never get an SQL expression.
        from sqlglot import exp, parse_one
        from sqlglot.errors import SqlglotError

        try:
            tree: Expression = parse_one(expression, into=exp.Condition)  # type: ignore[assignment]
            return cls(expression, _Reader(field).condition(tree, 0))
        except SqlglotError as error:
            raise Invalid(
                f"{_reason(error)}; write a condition such as amount > 100 AND region = 'EU'", field=field
            ) from None
        except RecursionError:
            raise Invalid(f"nested too deeply; at most {DEPTH_MAX} levels are allowed", field=field) from None

    @property
    def expressions(self) -> tuple[str, str]:
        """An empty tag expression, and the SQL expression."""
        return "", self.expression

    def select(self, opened: OpenedBatch) -> Int32s | None:
        """Return the rows that match, in order; None when all do."""
        hits = self._condition(BatchRows(opened)).true
        if hits.all():
            return None
        return np.flatnonzero(hits).astype("<i4")


class _Reader:
    """Turns a parser's tree into a condition, and refuses unsupported expressions."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._nodes = 0

    def condition(self, node: "Expression", depth: int) -> Condition:
        self._count(depth)
        kind = node.key
        if kind == "paren":
            return self.condition(node.this, depth + 1)
        if kind in ("and", "or"):
            parts = tuple(self.condition(part, depth + 1) for part in _chain(node, kind))
            return partial(all_of if kind == "and" else any_of, parts)
        if kind == "not":
            return partial(negate, self.condition(node.this, depth + 1))
        if kind in _OPERATORS:
            return self._comparison(
                _OPERATORS[kind], self.value(node.this, depth + 1), self.value(node.expression, depth + 1)
            )
        if kind == "between":
            value = self.value(node.this, depth + 1)
            low, high = self.value(node.args["low"], depth + 1), self.value(node.args["high"], depth + 1)
            return partial(all_of, (self._comparison(">=", value, low), self._comparison("<=", value, high)))
        if kind == "in":
            return self._one_of(node, depth)
        if kind == "is":
            return self._is(node, depth)
        if kind in ("like", "escape"):
            return self._like(node, depth)
        if kind in ("column", "boolean", "null"):
            value = self.value(node, depth + 1)
            if isinstance(value, Property):
                return partial(truth, value)
            return partial(constant, value)  # type: ignore[arg-type]
        raise self._refusal(node, "is not a condition")

    def value(self, node: "Expression", depth: int) -> Value:
        self._count(depth)
        kind = node.key
        if kind == "column":
            return Property(".".join(part.name for part in node.parts))  # type: ignore[attr-defined]
        if kind == "literal":
            return str(node.this) if node.is_string else self._number(node)
        if kind == "boolean":
            return bool(node.this)
        if kind == "null":
            return None
        if kind == "paren":
            return self.value(node.this, depth + 1)
        if kind == "neg":
            return self._arithmetic("-", 0.0, self.value(node.this, depth + 1))
        if kind in _ARITHMETIC:
            return self._arithmetic(
                _ARITHMETIC[kind], self.value(node.this, depth + 1), self.value(node.expression, depth + 1)
            )
        raise self._refusal(node, "is not a value")

    def _number(self, node: "Expression") -> float:
        if not NUMBER.fullmatch(node.this) or abs(number := float(node.this)) == float("inf"):
            raise self._refusal(node, "is not a number that can be compared")
        return number

    def _arithmetic(self, operator: str, left: Value, right: Value) -> Value:
        for side in (left, right):
            if isinstance(side, str | bool):
                raise Invalid(f"{_format_value(side)} is used as a number; give a number", field=self._field)
        if isinstance(left, float) and isinstance(right, float):
            return calculate(operator, left, right)
        return Arithmetic(operator, left, right)

    def _comparison(self, operator: str, left: Value, right: Value) -> Condition:
        if not isinstance(left, Property | Arithmetic) and isinstance(right, Property | Arithmetic):
            left, right, operator = right, left, _MIRRORED[operator]
        if left is None or right is None:
            return partial(constant, None)
        if isinstance(left, Property) and isinstance(right, str):
            if operator in ("=", "<>"):
                return _sign(operator, partial(one_of, left, (right,)))
            return partial(text_order, operator, left, right)
        if isinstance(right, bool) and operator in ("=", "<>") and isinstance(left, Property):
            return _sign("=" if right == (operator == "=") else "<>", partial(truth, left))
        if isinstance(left, bool) or isinstance(right, bool):
            raise Invalid("TRUE and FALSE can only be compared with a property, and only by = or <>", field=self._field)
        if isinstance(left, str) != isinstance(right, str):
            raise Invalid(
                f"{_format_value(left)} {operator} {_format_value(right)} compares a number with a text; quote "
                "both values or neither",
                field=self._field,
            )
        if not isinstance(left, Property | Arithmetic):
            return partial(constant, COMPARE[operator](left, right))
        if isinstance(left, Property) and isinstance(right, Property) and operator in ("=", "<>"):
            return _sign(operator, partial(same_text, left, right))
        return partial(number_order, operator, left, right)

    def _one_of(self, node: "Expression", depth: int) -> Condition:
        of = self.value(node.this, depth + 1)
        values = [self.value(item, depth + 1) for item in node.args.get("expressions") or ()]
        if not values:
            raise self._refusal(node, "has an empty list")
        if isinstance(of, Property) and all(isinstance(value, str) for value in values):
            return partial(one_of, of, tuple(values))  # type: ignore[arg-type]
        return partial(any_of, [self._comparison("=", of, value) for value in values])

    def _is(self, node: "Expression", depth: int) -> Condition:
        of, what = self.value(node.this, depth + 1), self.value(node.expression, depth + 1)
        if not isinstance(of, Property):
            raise self._refusal(node, "needs a property before IS")
        if what is None:
            return partial(is_null, of)
        if isinstance(what, bool):
            return partial(is_truth, of, what)
        raise self._refusal(node, "needs NULL, TRUE or FALSE behind IS")

    def _like(self, node: "Expression", depth: int) -> Condition:
        escape = ""
        if node.key == "escape":
            sign = self.value(node.expression, depth + 1)
            if not isinstance(sign, str) or len(sign) != 1:
                raise self._refusal(node, "needs one character behind ESCAPE")
            escape, node = sign, node.this
            if node.key != "like":
                raise self._refusal(node, "has ESCAPE without LIKE")
        of, pattern = self.value(node.this, depth + 1), self.value(node.expression, depth + 1)
        if not isinstance(of, Property) or not isinstance(pattern, str):
            raise self._refusal(node, "needs a property before LIKE and a text behind it")
        return partial(like, of, tuple(self._parts(pattern, escape)))

    def _parts(self, pattern: str, escape: str) -> Iterator[Part]:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise Invalid(
                f"a pattern of {len(pattern)} characters; {PATTERN_LENGTH_MAX} are allowed", field=self._field
            )
        part: list[str | None] = []
        signs = iter(pattern)
        for sign in signs:
            if sign == escape:
                following = next(signs, None)
                if following is None:
                    raise Invalid(f"the pattern {pattern!r} ends with its escape character", field=self._field)
                part.append(following)
            elif sign == "%":
                yield tuple(part)
                part = []
            else:
                part.append(None if sign == "_" else sign)
        yield tuple(part)

    def _count(self, depth: int) -> None:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise Invalid(f"more than {NODES_MAX} names, literals and operators", field=self._field)
        if depth > DEPTH_MAX:
            raise Invalid(f"nested too deeply; at most {DEPTH_MAX} levels are allowed", field=self._field)

    def _refusal(self, node: "Expression", why: str) -> Invalid:
        text = node.sql()
        shown = text if len(text) <= 60 else text[:57] + "..."
        return Invalid(
            f"{shown} {why}; filters have = <> < <= > >= BETWEEN, IN, LIKE, IS NULL, AND, OR, NOT, + - * / % over "
            "names, 'texts', numbers, TRUE and FALSE",
            field=self._field,
        )


def _sign(operator: str, equal: Condition) -> Condition:
    """The condition of `operator`, which is `=` or `<>`, given the condition of `=`."""
    return equal if operator == "=" else partial(negate, equal)


def _chain(node: "Expression", kind: str) -> list["Expression"]:
    """The operands of `a AND b AND ...`, in order; the parser nests them to the left."""
    parts: list[Expression] = []
    while node.key == kind:
        parts.append(node.expression)
        node = node.this
    return [node, *reversed(parts)]


def _reason(error: Exception) -> str:
    """The parser's error text, or a general text if the parser's text names its classes."""
    said = getattr(error, "errors", None)
    words, where = str(error).splitlines()[0].split(" into <class")[0], ""
    if said and said[0].get("line"):
        words, where = said[0]["description"].rstrip("."), f" at character {said[0]['col']}"
    return ("the expression cannot be read: a part of it is missing" if "<class" in words else words) + where


def _format_value(value: Value) -> str:
    if isinstance(value, Property):
        return value.name
    return repr(value) if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


_OPERATORS: Final = {"eq": "=", "neq": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARITHMETIC: Final = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}
