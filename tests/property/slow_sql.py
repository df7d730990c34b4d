"""SQL conditions on one message in the simplest way: on the parser's own tree, value by value."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import sqlglot
from sqlglot import exp

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def holds(expression: str, properties: Mapping[str, str], tag: str | None) -> bool:
    """Whether the message matches."""
    return _truth(sqlglot.parse_one(expression, into=exp.Condition), properties, tag) is True


def _truth(node: Any, properties: Mapping[str, str], tag: str | None) -> bool | None:  # noqa: C901
    def truth(part: Any) -> bool | None:
        return _truth(part, properties, tag)

    def text(part: Any) -> str | None:
        return tag if part.name == "TAGS" else properties.get(part.name)

    if isinstance(node, exp.Paren):
        return truth(node.this)
    if isinstance(node, exp.And):
        both = truth(node.this), truth(node.expression)
        return False if False in both else None if None in both else True
    if isinstance(node, exp.Or):
        both = truth(node.this), truth(node.expression)
        return True if True in both else None if None in both else False
    if isinstance(node, exp.Not):
        inner = truth(node.this)
        return None if inner is None else not inner
    if isinstance(node, exp.Is):
        if isinstance(node.expression, exp.Null):
            return text(node.this) is None
        return text(node.this) is not None and _boolean(text(node.this)) == node.expression.this
    if isinstance(node, exp.Between):
        low, high = (
            exp.GTE(this=node.this, expression=node.args["low"]),
            exp.LTE(this=node.this, expression=node.args["high"]),
        )
        return truth(exp.And(this=low, expression=high))
    if isinstance(node, exp.In):
        found = [truth(exp.EQ(this=node.this, expression=item)) for item in node.expressions]
        return True if True in found else None if None in found else False
    if isinstance(node, exp.Like):
        value = text(node.this)
        pattern = "".join({"%": ".*", "_": "."}.get(sign, re.escape(sign)) for sign in node.expression.this)
        return None if value is None else re.fullmatch(pattern, value, re.DOTALL) is not None
    if isinstance(node, exp.Column):
        return _boolean(text(node))
    sides = [node.this, node.expression]
    if any(isinstance(side, exp.Boolean) for side in sides):
        a, b = (side.this if isinstance(side, exp.Boolean) else _boolean(text(side)) for side in sides)
    elif any(isinstance(side, exp.Literal) and side.is_string for side in sides) or (
        isinstance(node, exp.EQ | exp.NEQ) and all(isinstance(side, exp.Column) for side in sides)
    ):
        a, b = (text(side) if isinstance(side, exp.Column) else side.this for side in sides)
    else:
        a, b = (_number(side, properties, tag) for side in sides)
    if a is None or b is None:
        return None
    return {exp.EQ: a == b, exp.NEQ: a != b}.get(type(node)) if isinstance(node, exp.EQ | exp.NEQ) else {
        exp.LT: a < b, exp.LTE: a <= b, exp.GT: a > b, exp.GTE: a >= b,
    }[type(node)]  # fmt: skip


def _boolean(text: str | None) -> bool | None:
    return {"true": True, "false": False}.get((text or "").lower())


def _number(node: Any, properties: Mapping[str, str], tag: str | None) -> float | None:
    if isinstance(node, exp.Literal):
        return float(node.this)
    if isinstance(node, exp.Column):
        text = tag if node.name == "TAGS" else properties.get(node.name)
        return float(text) if text is not None and _NUMBER.fullmatch(text) and math.isfinite(float(text)) else None
    if isinstance(node, exp.Paren):
        return _number(node.this, properties, tag)
    if isinstance(node, exp.Neg):
        value = _number(node.this, properties, tag)
        return None if value is None else -value
    a, b = _number(node.this, properties, tag), _number(node.expression, properties, tag)
    if a is None or b is None:
        return None
    try:
        results: dict[Any, Callable[[], float]] = {
            exp.Add: lambda: a + b, exp.Sub: lambda: a - b, exp.Mul: lambda: a * b, exp.Div: lambda: a / b,
            exp.Mod: lambda: math.fmod(a, b),
        }  # fmt: skip
        result = results[type(node)]()
    except (ZeroDivisionError, ValueError):
        return None
    return result if math.isfinite(result) else None
