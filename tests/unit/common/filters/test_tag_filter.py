"""A tag expression selects exactly the messages that carry one of its tags."""

import pytest

from ortoo.common.arrays.batch_check import check
from ortoo.common.arrays.gather import gather, narrow
from ortoo.common.arrays.opened_batch import OpenedBatch
from ortoo.common.errors import Invalid
from ortoo.common.filters.message_filter import TagFilter, compile_filter
from ortoo.common.records.batch import Message, encode, open_batch

TAGS = ("a", "b", None, "c", "a", "", "ö")


def opened(tags: tuple[str | None, ...] = TAGS) -> OpenedBatch:
    """A batch with these tags."""
    return check(encode([Message(b"x%d" % row, tag) for row, tag in enumerate(tags)], now_ms=1))


def compiled(expression: str) -> TagFilter:
    """The filter for named tags."""
    wanted = compile_filter(expression, "")
    assert isinstance(wanted, TagFilter)
    return wanted


@pytest.mark.parametrize(
    ("expression", "rows"),
    [
        ("a", [0, 4]),
        ("a || b", [0, 1, 4]),
        (" b||c ||", [1, 3]),
        ("ö", [6]),
        ("A", []),
        ("aa", []),
        ("none", []),
    ],
)
def test_named_tags_select_their_rows(expression: str, rows: list[int]) -> None:
    """Whole texts are compared; a message without a tag matches no named tag."""
    selected = compiled(expression).select(opened())
    assert selected is not None
    assert selected.tolist() == rows
    assert selected.dtype.str == "<i4"


@pytest.mark.parametrize("expression", ["", "  ", "*", " * ", "a || *"])
def test_everything_selects_all_rows(expression: str) -> None:
    """No filter is made, so that rows are neither examined nor copied."""
    assert compile_filter(expression, "") is None


def test_all_rows_wanted_by_name_are_all_rows() -> None:
    """A batch whose every message matches is passed on unchanged."""
    assert compiled("a||b").select(opened(("a", "b", "a"))) is None


def test_a_batch_without_tags_matches_no_named_tag() -> None:
    """An absent column is a column of messages without a tag."""
    selected = compiled("a").select(opened((None, None)))
    assert selected is not None
    assert len(selected) == 0


@pytest.mark.parametrize("expression", ["||", " || ||", "a|b", "a\x00", "x" * 20_000])
def test_a_wrong_expression_is_refused(expression: str) -> None:
    """An expression that can match nothing is refused as invalid."""
    with pytest.raises(Invalid) as caught:
        compile_filter(expression, "", "subscription")
    assert caught.value.field == "subscription.tag_expression"


def test_few_matching_rows_become_a_batch_of_their_own() -> None:
    """A gathered batch holds exactly the matching messages, passes every check, and has their row numbers."""
    messages = [
        Message(
            b"body-%d" % row * (row + 1),
            "t" if row % 5 == 0 else None,
            tuple(f"key-{row}-{at}" for at in range(row % 3)),
            message_group=f"g{row % 4}" if row % 2 else None,
            properties={f"n{at}": "v" * row for at in range(row % 4)},
            message_id=f"id-{row}" if row % 3 == 0 else None,
            born_at_ms=row,
            body_encoding=row % 2,
            trace_context="ü" if row % 4 == 0 else None,
        )
        for row in range(40)
    ]
    batch = check(encode(messages, now_ms=1))
    rows = compiled("t").select(batch)
    assert rows is not None
    sealed, said = narrow(batch, rows)
    assert said.tolist() == [0, 5, 10, 15, 20, 25, 30, 35]
    assert sealed.count == 8
    check(sealed)
    wanted = [messages[row] for row in said]
    assert list(open_batch(sealed)) == wanted
    assert sealed == encode(wanted, now_ms=1)


def test_many_matching_rows_leave_the_batch_alone() -> None:
    """From half of the rows on, the original bytes are passed on."""
    batch = opened(("a", "b"))
    rows = compiled("a").select(batch)
    assert rows is not None
    assert narrow(batch, rows)[0] is batch.sealed


def test_small_texts_and_large_bodies_gather_alike() -> None:
    """Both ways of copying give the same bytes as encoding the rows."""
    for size in (1, 20, 47, 48, 300):
        messages = [Message(bytes([row + 1]) * (size + row % 2), f"t{row % 7}") for row in range(100)]
        batch = check(encode(messages, now_ms=1))
        rows = compiled("t3||t5").select(batch)
        assert rows is not None
        assert gather(batch, rows) == encode([messages[row] for row in rows], now_ms=1)
