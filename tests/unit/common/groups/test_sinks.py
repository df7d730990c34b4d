"""Accounts of exactly-once sinks: their encoding as an offset, and the changes that an account accepts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.errors import Conflict, Invalid
from ortoo.common.groups.sinks import SinkAccount, SinkIdentity, is_sink_group, sink_group

FIRST, OTHER = SinkAccount.of_query("first", 7), SinkAccount.of_query("other", 0)


@given(st.integers(0, (1 << 24) - 1), st.integers(0, (1 << 36) - 2), st.booleans())
def test_an_account_is_an_offset_and_back(mark: int, batch_id: int, is_reset: bool) -> None:
    """The offset is in the range that an enode stores."""
    account = SinkAccount(mark, batch_id, is_reset)
    assert 0 <= account.offset < 1 << 62
    assert SinkAccount.from_offset(account.offset) == account


def test_accounts_of_earlier_versions_are_read() -> None:
    """The group and the offset of a sink never change."""
    assert sink_group("copy") == "%SINK%93434fb860aecbb2d9102a20fb61c165"
    assert FIRST.offset == SinkAccount.of_query("first", 7).query_mark << 36 | 8


def test_the_newest_batch_and_the_next_one_are_accepted() -> None:
    """A commit may be repeated, and batches without rows have gaps."""
    for batch_id in (7, 8, 11):
        assert FIRST.successor(replace(FIRST, batch_id=batch_id)).batch_id == batch_id


@pytest.mark.parametrize(
    ("stored", "following", "said"),
    [
        (FIRST, OTHER, "belongs to another query"),
        (FIRST, replace(FIRST, batch_id=6), "restored from an old copy"),
        (replace(FIRST, is_reset=True), replace(FIRST, batch_id=8), "an operator reset the sink after batch 7"),
        (OTHER, replace(FIRST, is_reset=True), "belongs to another query"),
    ],
)
def test_an_account_refuses_what_would_duplicate(stored: SinkAccount, following: SinkAccount, said: str) -> None:
    """Another query, an older batch, a query that was reset, and a reset of a query that is not there any more."""
    with pytest.raises(Conflict, match=said):
        stored.successor(following)


def test_a_reset_lets_another_query_begin() -> None:
    """The reset keeps the newest batch, also when it comes after a commit that its sender had not seen."""
    reset = replace(FIRST, is_reset=True)
    assert replace(FIRST, batch_id=9).successor(reset) == SinkAccount(FIRST.query_mark, 9, True)
    assert reset.successor(reset) == reset
    assert reset.successor(OTHER) == OTHER


def test_an_account_is_named_by_id_or_by_group() -> None:
    """An empty or too long id is refused with what to give."""
    assert is_sink_group(sink_group("copy"))
    assert sink_group(sink_group("copy")) == sink_group("copy")
    with pytest.raises(Invalid, match="give the sinkId"):
        sink_group("")
    with pytest.raises(Invalid, match="1025 bytes; give at most 1,024"):
        SinkIdentity("s" * 1_025).check()
