"""A compiled, vectorised SQL filter selects exactly the messages that a simple evaluator selects."""

from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.arrays.batch_check import check
from ortoo.common.errors import Invalid
from ortoo.common.filters.sql_filter import SqlFilter
from ortoo.common.records.batch import Message, encode
from tests.property.slow_sql import holds

NAMES = ("a", "b", "c", "TAGS")
TEXTS = (
    *("1", "2", "10", "-3.5", "007", "1e2", "3.14159265358979", ".5", "5.", "+4", "12345678901234567890", "1e999"),
    *("", "x", "xy", "äö", "x_y", "100%", "true", "FALSE", "tru", "-", ".", "1.2.3", "٣", "--1", "a longer text"),
)
names = st.sampled_from(NAMES)
quoted = st.sampled_from([text for text in TEXTS if text.isascii()] + ["äö"]).map(lambda text: f"'{text}'")
digits = st.sampled_from(["0", "1", "2", "3.5", "100", "1e2", "12345678901234567890"])
numbers = st.recursive(
    st.one_of(digits, names),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/%"), inner).map(lambda it: f"({it[0]} {it[1]} {it[2]})"),
        inner.map(lambda it: f"(-{it})"),
    ),
    max_leaves=3,
)
signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
patterns = st.lists(st.sampled_from(["%", "_", "x", "y", "ä", "1"]), max_size=5).map(lambda it: f"'{''.join(it)}'")
simple = st.one_of(
    st.tuples(names, signs, numbers).map(" ".join),
    st.tuples(names, signs, quoted).map(" ".join),
    st.tuples(quoted, signs, names).map(" ".join),
    st.tuples(names, signs, names).map(" ".join),
    st.tuples(names, st.sampled_from(["=", "<>"]), st.sampled_from(["TRUE", "FALSE"])).map(" ".join),
    names,
    st.tuples(names, st.sampled_from(["IS NULL", "IS NOT NULL", "IS TRUE", "IS FALSE"])).map(" ".join),
    st.tuples(names, st.sampled_from(["", "NOT "]), numbers, numbers).map(
        lambda it: f"{it[0]} {it[1]}BETWEEN {it[2]} AND {it[3]}"
    ),
    st.tuples(names, st.sampled_from(["", "NOT "]), st.lists(quoted, min_size=1, max_size=3)).map(
        lambda it: f"{it[0]} {it[1]}IN ({', '.join(it[2])})"
    ),
    st.tuples(names, st.lists(digits, min_size=1, max_size=3)).map(lambda it: f"{it[0]} IN ({', '.join(it[1])})"),
    st.tuples(names, st.sampled_from(["", "NOT "]), patterns).map(lambda it: f"{it[0]} {it[1]}LIKE {it[2]}"),
)
expressions = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda it: f"({it[0]} {it[1]} {it[2]})"),
        inner.map(lambda it: f"NOT ({it})"),
    ),
    max_leaves=6,
)
values = st.sampled_from([text for text in TEXTS if text])
messages = st.builds(
    lambda properties, tag: Message(b"x", tag, properties=properties),
    st.dictionaries(st.sampled_from(["a", "b", "c", "other"]), st.sampled_from(TEXTS), max_size=4),
    st.none() | values,
)


@given(expression=expressions, batch=st.lists(messages, min_size=1, max_size=12))
def test_a_filter_chooses_what_a_loop_over_messages_would(expression: str, batch: list[Message]) -> None:
    """Three-valued logic, numbers in texts, patterns, order: the same for whole batches as for single messages."""
    rows = SqlFilter.compile(expression).select(check(encode(batch, now_ms=1)))
    chosen = list(range(len(batch))) if rows is None else rows.tolist()
    assert chosen == [row for row, one in enumerate(batch) if holds(expression, one.properties, one.tag)]


@given(text=st.text(max_size=60))
def test_any_text_is_an_expression_or_a_named_error(text: str) -> None:
    """For any text from a client, the snode answers Invalid or has a filter that works."""
    try:
        wanted = SqlFilter.compile(text)
    except Invalid:
        return
    wanted.select(check(encode([Message(b"x", properties={"a": "1"})], now_ms=1)))
