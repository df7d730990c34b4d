"""The texts of messages, and numbers in them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ortoo.common.errors import Invalid
from ortoo.common.records.batch import Message, encode
from ortoo.common.records.columns import KEYS, RARE_COLUMNS, TAG, MessageColumn
from ortoo.common.records.text_rules import whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("17", 17), ("2147483647", 2147483647), ("2147483648", None), ("", None), ("-1", None), ("1.5", None),
        ("\u00b2", None), ("\u0663", None), ("9" * 5_000, None),
    ],
)  # fmt: skip
def test_a_text_tells_a_number_that_fits_or_none(text: str, number: int | None) -> None:
    """No text of a sender makes the reader fail: int() accepts other digits, and refuses too many."""
    assert whole_number(text) == number


def test_times_are_longer_numbers() -> None:
    """Of 63 bits, as they are stored."""
    assert whole_number(str((1 << 63) - 1), 63) == (1 << 63) - 1
    assert whole_number(str(1 << 63), 63) is None


_COLUMNS: Sequence[MessageColumn[Any]] = (TAG, KEYS, *RARE_COLUMNS)
_WRONG: Sequence[Any] = ([], (), {}, "", b"", 0, False, 1.5, ["a"], [("a", "b")], {"a": 1})
_OTHERS = (Message(b"x"), Message(b"x", "t", ("k",), message_id="i", trace_context="c", properties={"a": "b"}))


@pytest.mark.parametrize("column", [one for one in _COLUMNS if one.rule is not None], ids=lambda column: column.name)
@pytest.mark.parametrize("value", _WRONG, ids=repr)
def test_a_value_is_refused_in_a_batch_as_in_a_message(column: MessageColumn[Any], value: Any) -> None:
    """A wrong value, also one that is false, is refused alone, as one of a batch, and between other messages."""
    message = Message(b"x", **{column.name: value})
    ways: Sequence[Callable[[], object]] = (
        message.check,
        lambda: encode([message], now_ms=1),
        lambda: encode([_OTHERS[0], message, _OTHERS[1]], now_ms=1),
    )
    assert len({_is_refused(way) for way in ways}) == 1


def _is_refused(way: Callable[[], object]) -> bool:
    try:
        way()
    except Invalid:
        return True
    return False
