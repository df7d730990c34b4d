"""Projection: the remaining columns are unchanged, and a batch is rewritten only where that saves bytes."""

from dataclasses import replace
from hashlib import sha256

import pytest

from ortoo.client import Message
from ortoo.common.errors import Invalid
from ortoo.common.filters.projection import columns_of, project
from ortoo.common.records.batch import encode, open_batch
from ortoo.common.records.columns import KEYS, MESSAGE_ID, TAG
from ortoo.common.records.compression import Codec

MESSAGES = [
    Message(
        sha256(b"%d" % n).digest() * 3, f"tag-{n % 3}", (f"key-{n}",), properties={"n": str(n)}, message_id=f"own-{n}"
    )
    for n in range(100)
]


@pytest.mark.parametrize("codec", list(Codec))
def test_the_columns_that_stay_are_what_they_were(codec: Codec) -> None:
    """Bodies, texts and lists keep every row; the other columns are absent, and the checksum is right."""
    batch = encode(MESSAGES, now_ms=0, codec=codec)
    narrow = project(batch, columns_of(["keys", "message_id"]))
    assert len(narrow.records) < len(batch.records) * 2 / 3
    narrow.check()
    view = open_batch(narrow)
    assert (view.count, list(view.values(KEYS))) == (100, [message.keys for message in MESSAGES])
    assert list(view.values(MESSAGE_ID)) == [message.message_id for message in MESSAGES]
    assert set(view.values(TAG)) == {None}
    with pytest.raises(Invalid, match="body"):
        view.bodies()
    assert open_batch(project(batch, columns_of(["body", "count"]))).bodies() == [message.body for message in MESSAGES]


def test_a_batch_that_would_hardly_shrink_stays_the_producers_own() -> None:
    """No columns means all columns; a projection that leaves out little makes no copy."""
    batch = encode([Message(b"x" * 1_000, "tag") for _ in range(50)], now_ms=0)
    assert project(batch, columns_of([])) is batch
    assert project(batch, columns_of(["body"])) is batch
    assert len(project(batch, columns_of(["count"])).records) < 300


def test_a_name_that_no_column_has_is_refused() -> None:
    """The error names the wrong column and the valid ones."""
    with pytest.raises(Invalid, match=r"'bodies' is not a column; expected format, .* body,"):
        columns_of(["tag", "bodies"])


def test_damaged_bytes_get_no_new_seal() -> None:
    """G12: bytes that changed in transit are refused where they would otherwise get a new checksum."""
    batch = encode(MESSAGES, now_ms=0)
    damaged = replace(batch, records=batch.records[:-1] + bytes([batch.records[-1] ^ 1]))
    with pytest.raises(Invalid, match="changed in transit"):
        project(damaged, columns_of(["tag"]))
