"""The texts of messages, and numbers in them."""

import pytest

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
