"""The receipt handle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.errors import Invalid
from ortoo.snode.pop.receipt_handle import ReceiptHandle, decode_handle

HANDLE = ReceiptHandle("enode-0", "billing", 0xFEDCBA9876543210, 3, (7 << 40) + 5, 1 << 40, 32)


def test_a_handle_reads_back_and_is_plain_text() -> None:
    """ASCII without blanks, well below 1 KiB; pinned, because handles outlive an upgrade of the snode."""
    text = HANDLE.encoded()
    assert decode_handle(text) == HANDLE
    assert text.isascii()
    assert len(text) < 200
    assert text == "AQcHAwAAABAyVHaYutz-BQAAAAAHAAAAAAAAAAEAACAAAABlbm9kZS0wYmlsbGluZ74t9O4"


@given(st.integers(0, len(HANDLE.encoded()) - 1), st.sampled_from("ABCxyz019-_"))
def test_any_changed_character_is_noticed(at: int, other: str) -> None:
    """A forged or damaged handle is Invalid, never another lease."""
    text = HANDLE.encoded()
    changed = text[:at] + other + text[at + 1 :]
    if changed == text:
        return
    try:
        assert decode_handle(changed) == HANDLE  # the last character has bits to spare
    except Invalid:
        return


@pytest.mark.parametrize("text", ["", "x", "é", "AAAA", "A" * 600, HANDLE.encoded()[:-4]])
def test_what_is_no_handle_is_refused_by_its_field(text: str) -> None:
    """Whatever it is."""
    with pytest.raises(Invalid, match="receipt_handle"):
        decode_handle(text)
