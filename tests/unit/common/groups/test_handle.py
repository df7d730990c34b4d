"""Handles name what they were made for, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.errors import Invalid
from ortoo.common.groups.delay_levels import delay_ms_of_level
from ortoo.common.groups.handle import Handle, HandleKind, read_handle

HANDLE = Handle(HandleKind.DELAYED, "enode-0", 0xFEDC_BA98_7654_3210, 3, 42, 1_700_000_000_000)


def test_a_handle_is_read_back() -> None:
    """Its text has no characters that a shell or an URL would change."""
    assert read_handle(HANDLE.text(), HandleKind.DELAYED, "recall_handle") == HANDLE
    assert HANDLE.text().replace("-", "").replace("_", "").isalnum()


@given(at=st.integers(0, 63), sign=st.characters(codec="utf-8"))
def test_a_changed_handle_is_refused(at: int, sign: str) -> None:
    """One wrong character is noticed; the error names the field."""
    text = HANDLE.text()
    at %= len(text)
    changed = text[:at] + sign + text[at + 1 :]
    if changed != text:
        with pytest.raises(Invalid) as caught:
            read_handle(changed, HandleKind.DELAYED, "recall_handle")
        assert caught.value.field == "recall_handle"


def test_a_handle_of_another_kind_is_refused() -> None:
    """A transaction's handle recalls nothing."""
    with pytest.raises(Invalid, match="transaction"):
        read_handle(HANDLE.text(), HandleKind.TRANSACTION, "transaction_id")


def test_levels_are_those_of_rocketmq() -> None:
    """Level 3 is ten seconds, level 18 two hours, and more than the last is the last (E-176)."""
    assert [delay_ms_of_level(level) for level in (0, 1, 3, 18, 99)] == [0, 1_000, 10_000, 7_200_000, 7_200_000]
    with pytest.raises(Invalid):
        delay_ms_of_level(-1)
