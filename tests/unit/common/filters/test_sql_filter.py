"""SQL conditions over properties: the messages that they select, and the errors of wrong ones."""

import weakref
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from ortoo.common.arrays.batch_check import check
from ortoo.common.arrays.opened_batch import OpenedBatch
from ortoo.common.errors import Invalid
from ortoo.common.filters.sql_conditions import BatchRows, Condition, ConditionResult, all_of, any_of
from ortoo.common.filters.sql_filter import SqlFilter
from ortoo.common.records.batch import Message, encode

ROWS = (
    Message(b"0", "vip", properties={"region": "EU", "amount": "150"}),
    Message(b"1", None, properties={"region": "US", "amount": "99.5"}),
    Message(b"2", "gold", properties={"region": "EU"}),
    Message(b"3", "x", properties={"amount": "many", "paid": "TRUE"}),
    Message(b"4", None),
    Message(b"5", "vip", properties={"order.id": "o'1", "amount": "-3e2", "region": "EUR"}),
)


def opened() -> OpenedBatch:
    """The messages above."""
    return check(encode(ROWS, now_ms=1))


@pytest.mark.parametrize(
    ("expression", "rows"),
    [
        ("region = 'EU'", [0, 2]),
        ("region <> 'EU'", [1, 5]),
        ("NOT region = 'EU'", [1, 5]),
        ("amount > 99", [0, 1]),
        ("amount > 99 OR amount <= 0", [0, 1, 5]),
        ("NOT (amount > 99)", [5]),
        ("amount BETWEEN 99.5 AND 150", [0, 1]),
        ("amount * 2 >= 300", [0]),
        ("amount / 0 = 1", []),
        ("amount IS NULL", [2, 4]),
        ("amount IS NOT NULL AND amount <> 150", [1, 5]),
        ("TAGS IN ('vip', 'gold')", [0, 2, 5]),
        ("TAGS IS NULL", [1, 4]),
        ("paid = TRUE", [3]),
        ("paid", [3]),
        ("paid IS NOT TRUE", [0, 1, 2, 4, 5]),
        ("amount IS TRUE", []),
        ("NOT (amount IS TRUE)", [0, 1, 2, 3, 4, 5]),
        ("order.id = 'o''1'", [5]),
        ("\"order.id\" LIKE 'o_1'", [5]),
        ("region LIKE 'E%'", [0, 2, 5]),
        ("region LIKE '%U'", [0, 2]),
        ("region LIKE 'E!%' ESCAPE '!'", []),
        ("region >= 'EUR'", [1, 5]),
        ("'EU' = region", [0, 2]),
        ("100 < amount", [0]),
        ("1 = 1", [0, 1, 2, 3, 4, 5]),
        ("region = NULL", []),
    ],
)
def test_a_condition_selects_its_rows(expression: str, rows: list[int]) -> None:
    """Only a condition that is true selects; false and unknown do not."""
    selected = SqlFilter.compile(expression).select(opened())
    assert (list(range(len(ROWS))) if selected is None else selected.tolist()) == rows


def test_all_rows_are_said_as_none() -> None:
    """A batch whose every message matches is passed on unchanged."""
    assert SqlFilter.compile("1 < 2").select(opened()) is None


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "empty"),
        ("region = ", "region ="),
        ("region = 'EU", "region = 'EU"),
        ("amount = 1; drop table x", "character 16"),
        ("length(region) = 2", "LENGTH(region) is not a value"),
        ("region = ?", "is not a value"),
        ("region IN ()", "empty list"),
        ("amount > 'x' + 1", "used as a number"),
        ("1 = 'x'", "compares a number with a text"),
        ("amount > TRUE", "TRUE and FALSE"),
        ("amount = 1e999", "is not a number"),
        ("EXISTS(SELECT 1)", "is not a condition"),
        ("region LIKE 5", "LIKE"),
        ("region LIKE '" + "a" * 300 + "'", "pattern of 300"),
        ("(" * 100 + "a = 1" + ")" * 100, "nested too deeply"),
        ("(" * 3000 + "a = 1" + ")" * 3000, "nested too deeply"),
        (" OR ".join(["a = 1"] * 600), "more than 1000"),
        ("a = '" + "x" * 9000 + "'", "9006 characters"),
    ],
)
def test_a_wrong_expression_is_refused_with_what_is_wrong(expression: str, said: str) -> None:
    """The error names the field, the wrong part, and the valid syntax."""
    with pytest.raises(Invalid) as caught:
        SqlFilter.compile(expression, field="sql_expression")
    assert caught.value.field == "sql_expression"
    assert said in caught.value.message


@pytest.mark.parametrize("several", [all_of, any_of])
def test_verdicts_of_several_parts_are_never_all_in_memory(
    several: Callable[[list[Condition], BatchRows], ConditionResult],
) -> None:
    """An expression may have hundreds of parts, and each verdict takes two bytes per row."""
    made: weakref.WeakValueDictionary[int, NDArray[np.bool_]] = weakref.WeakValueDictionary()
    alive = []

    def part(rows: BatchRows) -> ConditionResult:
        verdict = ConditionResult(np.zeros(rows.count, np.bool_), np.zeros(rows.count, np.bool_))
        alive.append(len(made))
        made[len(alive)] = verdict.true
        return verdict

    several([part] * 100, BatchRows(opened()))
    assert len(alive) == 100
    assert max(alive) <= 2
