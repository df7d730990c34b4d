"""Batches of format 1 open permanently, and the same messages always give the same bytes."""

import json
from pathlib import Path
from typing import Any

from ortoo.common.arrays.batch_check import check
from ortoo.common.records.batch import encode, open_batch
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import SealedBatch

HERE = Path(__file__).parent
RECORDS = (HERE / "record_batch_v1.bin").read_bytes()
SAID: dict[str, Any] = json.loads((HERE / "record_batch_v1.json").read_text())


def golden_messages() -> list[Message]:
    """The messages of the golden file, as their producer gave them."""
    return [
        Message(**{**fields, "body": fields["body"].encode(), "keys": tuple(fields["keys"])})
        for fields in SAID["messages"]
    ]


def golden_batch() -> SealedBatch:
    """The golden bytes in their envelope."""
    messages = golden_messages()
    inflated_bytes = sum(len(message.body) for message in messages)
    return SealedBatch(RECORDS, SAID["records_crc32c"], len(messages), inflated_bytes, delayed=True)


def test_golden_bytes_open() -> None:
    """Every field of every message of an old batch is read."""
    opened = list(open_batch(golden_batch(), verify_crc=True))
    assert opened == [
        message if message.born_at_ms is not None else message.replace(born_at_ms=SAID["now_ms"])
        for message in golden_messages()
    ]


def test_golden_bytes_pass_the_check() -> None:
    """The snode accepts an old producer's batch."""
    assert check(golden_batch()).count == len(golden_messages())


def test_encoding_gives_the_golden_bytes() -> None:
    """Encoding is deterministic: another byte would be another format."""
    assert encode(golden_messages(), now_ms=SAID["now_ms"]) == golden_batch()
