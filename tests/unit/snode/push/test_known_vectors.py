"""The test vectors of other implementations of these rules, as far as they apply here.

Those of the allocation are in tests/unit/common/groups/test_allocation.py. Tags are compared whole, without a hash.
Checksums of the log are CRC-32C. A message's id has its topic, enode, queue and offset.
"""

from ortoo.common.arrays.batch_check import check
from ortoo.common.filters.message_filter import TagFilter
from ortoo.common.groups.failure_rule import FailureRule
from ortoo.common.groups.retry_policy import RetryPolicy
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.snode.membership.group_members import SlowConsumerRule


def java_hash(text: str) -> int:
    """Java's String.hashCode, for texts of the basic plane; only positive results are needed here."""
    value = 0
    for sign in text:
        value = (31 * value + ord(sign)) % (1 << 32)
    return value


def test_tags_of_one_hash_are_told_apart() -> None:
    """E-152: the vectors of the hash, and that `Aa` and `BB`, which share one, are different tags here."""
    known = {"TagA": 2598919, "TagB": 2598920, "TagC": 2598921, "Aa": 2112, "BB": 2112}
    assert {tag: java_hash(tag) for tag in known} == known
    sealed = encode([Message(b"x", "Aa"), Message(b"y", "BB"), Message(b"z")], now_ms=1)
    rows = TagFilter(frozenset({"Aa"})).select(check(sealed))
    assert rows is not None
    assert rows.tolist() == [0]


def test_sixteen_retries_wait_as_they_always_did() -> None:
    """E-170: after 0 to 15 earlier attempts the levels 3 to 18."""
    minutes = [60 * number for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)]
    rule = FailureRule(delays_ms=RetryPolicy().delays_ms)
    assert [rule.delay_ms(attempt) // 1000 for attempt in range(1, 17)] == [10, 30, *minutes]


def test_who_has_no_offset_yet_is_never_slow() -> None:
    """E-085: with -1 for no offset, a difference above 1,024 would make a new member slow, but not here."""
    rule = SlowConsumerRule(grace_s=0.0)
    for newest, absent, at_minus_one in ((1_023, False, False), (1_024, False, True)):
        for acknowledged, expected in ((None, absent), (-1, at_minus_one)):
            assert (
                rule.is_slow(newest_offset=newest, acknowledged_offset=acknowledged, waiting_since_s=0.0, now_s=1.0)
                is expected
            )
