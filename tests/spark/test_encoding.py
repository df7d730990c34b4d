"""Arrow to record batch and back, without Spark and without a server."""

import contextlib
import datetime
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ortoo.client import Queue, ReceivedBatch
from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.records.batch import encode, open_batch
from ortoo.common.records.compression import Codec
from ortoo.common.records.sealed_batch import RECORDS_BYTES_MAX, SealedBatch, crc32c
from ortoo.spark.arrow.batch import BatchDecoder
from ortoo.spark.writing.record_encoder import BatchCutter, sealed_batch

EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
MAP = pa.map_(pa.string(), pa.string())
TEXT = st.text(
    st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="|"), min_size=1, max_size=8
).filter(lambda text: bool(text.strip(" ")))
ROW = st.fixed_dictionaries(
    {
        "body": st.binary(min_size=1, max_size=40),
        "tag": st.none() | TEXT,
        "keys": st.lists(TEXT, max_size=3),
        "message_group": st.none() | TEXT,
        "properties": st.dictionaries(TEXT, TEXT, max_size=3),
        "message_id": st.none() | TEXT,
        "born_at": st.integers(0, 2**40),
        "trace_context": st.none() | TEXT,
        "born_host": st.none() | TEXT,
        "expire_at": st.none() | st.integers(1, 2**40),
    }
)
TIME = pa.timestamp("us", tz="UTC")
TEXTS, TIMES = ("tag", "message_group", "message_id", "trace_context", "born_host"), ("expire_at", "deliver_at")
KINDS = {"body": pa.binary(), "keys": pa.list_(pa.string()), "properties": MAP, "born_at": TIME, "expire_at": TIME}
READ = pa.schema(
    [
        ("body", pa.binary()),
        ("tag", pa.string()),
        ("keys", pa.list_(pa.field("element", pa.string()))),
        ("message_group", pa.string()),
        ("properties", MAP),
        ("message_id", pa.string()),
        ("born_at", pa.timestamp("us", tz="UTC")),
        ("trace_context", pa.string()),
        ("born_host", pa.string()),
        ("expire_at", TIME),
        ("offset", pa.int64()),
        ("stored_at", pa.timestamp("us", tz="UTC")),
    ]
)


def arrow_rows(rows: list[dict[str, Any]]) -> Any:
    """Rows as Spark would give them."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    columns["properties"] = [list(entries.items()) for entries in columns["properties"]]
    for name in ("born_at", "expire_at"):
        columns[name] = [None if ms is None else EPOCH + datetime.timedelta(milliseconds=ms) for ms in columns[name]]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, KINDS.get(name, pa.string())) for name, values in columns.items()], names=list(columns)
    )


@given(st.lists(ROW, min_size=1, max_size=30), st.integers(0, 5), st.sampled_from(Codec))
def test_rows_survive_the_way_there_and_back(rows: list[dict[str, Any]], cut: int, codec: Codec) -> None:
    """Rows encoded from Arrow are decoded equally by the client's reader and by Spark's, slices included."""
    cut = min(cut, len(rows) - 1)
    sealed = sealed_batch(arrow_rows(rows).slice(cut), now_ms=5, codec=codec)
    wanted = rows[cut:]
    for message, row in zip(open_batch(sealed), wanted, strict=True):
        assert (message.body, message.tag, list(message.keys)) == (row["body"], row["tag"], row["keys"])
        assert (message.message_group, dict(message.properties)) == (row["message_group"], row["properties"])
        assert (message.message_id, message.born_at_ms) == (row["message_id"], row["born_at"])
        assert (message.trace_context, message.born_host) == (row["trace_context"], row["born_host"])
        assert message.expire_at_ms == row["expire_at"]
    received = ReceivedBatch(
        Queue("t", "e", 1), sealed, topic_id=7, first_offset=10, next_offset=10 + len(wanted), stored_at_ms=99
    )
    batch = BatchDecoder(READ).decode(received)
    batch.validate(full=True)
    for name in ("body", "tag", "keys", "message_group", "trace_context", "born_host"):
        assert batch.column(name).to_pylist() == [row[name] for row in wanted]
    assert [dict(entries) for entries in batch.column("properties").to_pylist()] == [
        row["properties"] for row in wanted
    ]
    assert batch.column("expire_at").cast(pa.int64()).to_pylist() == [
        None if row["expire_at"] is None else 1000 * row["expire_at"] for row in wanted
    ]
    made = [row["message_id"] or f"{7:016x}-e-1-{10 + at}" for at, row in enumerate(wanted)]
    assert batch.column("message_id").to_pylist() == made
    assert batch.column("offset").to_pylist() == list(range(10, 10 + len(wanted)))


@given(st.lists(ROW, min_size=1, max_size=20))
def test_what_the_client_encodes_and_what_we_encode_are_the_same_bytes(rows: list[dict[str, Any]]) -> None:
    """A format has one encoding, independent of the encoder."""
    sealed = sealed_batch(arrow_rows(rows), now_ms=5)
    assert encode(list(open_batch(sealed)), now_ms=5) == sealed


@given(st.lists(st.integers(1, 300_000), min_size=1, max_size=40), st.lists(st.integers(1, 39), max_size=5))
def test_batches_are_cut_in_the_same_places_however_rows_come(sizes: list[int], splits: list[int]) -> None:
    """A repeated task may get its rows in other pieces, and must send the same batches."""
    rows = pa.RecordBatch.from_arrays([pa.array([b"x" * size for size in sizes])], names=["body"])

    def batches(edges: list[int]) -> list[bytes]:
        cutter, made = BatchCutter(Codec.NONE), []
        for begin, end in zip([0, *edges], [*edges, len(sizes)], strict=True):
            if end > begin:
                made += list(cutter.add(rows.slice(begin, end - begin), 1))
        return [batch.records for batch in [*made, *cutter.finish(1)]]

    whole = batches([])
    assert batches(sorted({edge for edge in splits if edge < len(sizes)})) == whole
    assert all(len(each) <= RECORDS_BYTES_MAX for each in whole)


@pytest.mark.parametrize("body_bytes", [150, 200, 1_000])
def test_batches_with_all_columns_keep_their_limit(body_bytes: int) -> None:
    """A copy of a whole topic has a row in each column for each message, and each text may be a new one."""
    numbers = range(9_000)
    texts = {name: pa.array([f"{name}-{at}" for at in numbers]) for name in (*TEXTS, "keys")}
    columns = {
        "body": pa.array([b"x" * body_bytes for _ in numbers]),
        **texts,
        "properties": pa.array([[(f"name-{at}", "value")] for at in numbers], MAP),
        **{name: pa.array([EPOCH + datetime.timedelta(1) for _ in numbers], TIME) for name in ("born_at", *TIMES)},
        "priority": pa.array([1 for _ in numbers], pa.int32()),
    }
    cutter = BatchCutter(Codec.NONE)
    made = [*cutter.add(pa.RecordBatch.from_pydict(columns), 1), *cutter.finish(1)]
    for batch in made:
        batch.check()
    assert sum(batch.count for batch in made) == 9_000
    assert len(made[0].records) > RECORDS_BYTES_MAX * 0.85


@pytest.mark.parametrize(("body", "said"), [(None, "is null"), (b"", "is empty"), (b"x" * (4 << 20) + b"x", "at most")])
def test_bodies_nobody_may_send_are_refused_before_they_travel(body: bytes | None, said: str) -> None:
    """A message has 1 byte to 4 MiB."""
    rows = pa.RecordBatch.from_arrays([pa.array([b"good", body], pa.binary())], names=["body"])
    with pytest.raises(Invalid, match=said):
        list(BatchCutter(Codec.NONE).add(rows, 1))


@given(st.data())
def test_damaged_columns_are_named_and_never_believed(data: st.DataObject) -> None:
    """Any bytes as a batch give an error of Ortoo, or rows, and nothing else."""
    rows = [
        {"body": b"a" * 9, "tag": "t", "keys": ["k"], "message_group": "g", "properties": {"p": "v"}} for _ in range(5)
    ]
    whole = [
        {**row, "message_id": "i", "born_at": 1, "trace_context": "c", "born_host": "h", "expire_at": 1} for row in rows
    ]
    sealed = sealed_batch(arrow_rows(whole), now_ms=5)
    records = bytearray(sealed.records)
    for place in data.draw(st.lists(st.integers(0, len(records) - 1), min_size=1, max_size=4)):
        records[place] = data.draw(st.integers(0, 255))
    damaged = SealedBatch(bytes(records), crc32c(bytes(records)), sealed.count, sealed.body_inflated_bytes)
    received = ReceivedBatch(Queue("t", "e", 1), damaged, topic_id=7, first_offset=0, next_offset=5, stored_at_ms=99)
    with contextlib.suppress(OrtooError):
        BatchDecoder(READ).decode(received).validate(full=True)
