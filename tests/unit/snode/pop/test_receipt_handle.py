"""The receipt handle."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.errors import Invalid, Unsupported
from ortoo.common.groups.handle_seal import HandleKey, HandleKeys, HandleSeals
from ortoo.snode.pop.receipt_handle import ReceiptHandle, read_receipt

HANDLE = ReceiptHandle("enode-0", "billing", 0xFEDCBA9876543210, 3, (7 << 40) + 5, 1 << 40, 32)
PLAIN, SEALS = HandleSeals(), HandleSeals()
SEALS.use_keys(HandleKeys((HandleKey(7, bytes(range(32)), 0),)))


def test_a_handle_reads_back_and_is_plain_text() -> None:
    """ASCII without blanks, well below 1 KiB; pinned, because handles outlive an upgrade of the snode."""
    text = HANDLE.encoded(SEALS)
    assert read_receipt(text, SEALS) == HANDLE == read_receipt(text, None)
    assert text.isascii()
    assert len(text) < 200
    assert text == "AgcHAwAAABAyVHaYutz-BQAAAAAHAAAAAAAAAAEAACAAAABlbm9kZS0wYmlsbGluZwcAAABR8n2fkUaoYcOFq91FCbXn"
    assert HANDLE.encoded(PLAIN) == "AQcHAwAAABAyVHaYutz-BQAAAAAHAAAAAAAAAAEAACAAAABlbm9kZS0wYmlsbGluZ74t9O4"


def test_each_renewal_changes_the_text_and_not_the_lease() -> None:
    """Clients of RocketMQ expect another handle from each renewal."""
    handles = [HANDLE, HANDLE.renewed(), HANDLE.renewed().renewed()]
    texts = [one.encoded(SEALS) for one in handles]
    assert len(set(texts)) == 3
    read = [read_receipt(text, SEALS) for text in texts]
    assert read == [HANDLE] * 3
    assert [one.renewals for one in read] == [0, 1, 2]


@pytest.mark.parametrize("seals", [SEALS, PLAIN])
@given(st.integers(0, 300), st.sampled_from("ABCxyz019-_"))
def test_any_changed_character_is_noticed(seals: HandleSeals, at: int, other: str) -> None:
    """A forged or damaged handle is refused, never taken for another lease."""
    text = HANDLE.encoded(seals)
    at %= len(text)
    changed = text[:at] + other + text[at + 1 :]
    with contextlib.suppress(Invalid, Unsupported):
        assert read_receipt(changed, seals) == HANDLE  # the last character has bits to spare


def test_a_handle_that_the_cluster_did_not_make_is_refused() -> None:
    """One without a seal, or sealed by another key."""
    other = HandleSeals()
    other.use_keys(HandleKeys((HandleKey(7, bytes(32), 0),)))
    for text in (HANDLE.encoded(PLAIN), replace(HANDLE, topic_id=1).encoded(other)):
        with pytest.raises(Invalid, match="receipt_handle"):
            read_receipt(text, SEALS)


@pytest.mark.parametrize(
    "text", ["", "x", "é", "AAAA", "A" * 600, HANDLE.encoded(PLAIN)[:-4], HANDLE.encoded(SEALS)[:-4]]
)
def test_what_is_no_handle_is_refused_by_its_field(text: str) -> None:
    """With any content."""
    with pytest.raises((Invalid, Unsupported), match="receipt_handle"):
        read_receipt(text, SEALS)
