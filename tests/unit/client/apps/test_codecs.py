"""Bodies are decoded to the type of a handler; invalid ones are errors."""

from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from ortoo.client.apps.codecs import Undecodable, codec_of
from ortoo.common.process.randomness import Randomness


@pytest.fixture
def pa() -> Any:
    """Arrow, which comes with Spark."""
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed; run `make spark-setup`")


@dataclass
class Plain:
    """A dataclass."""

    number: str
    cents: int


class Struct(msgspec.Struct):
    """msgspec's."""

    number: str
    cents: int


class Model(pydantic.BaseModel):
    """pydantic's."""

    number: str
    cents: int


class Typed(TypedDict):
    """A dictionary with types."""

    number: str
    cents: int


VALUES = [
    (bytes, b"\x00\xff"),
    (str, "örtöö"),
    (Plain, Plain("o-1", 42)),
    (Struct, Struct("o-1", 42)),
    (Model, Model(number="o-1", cents=42)),
    (Typed, {"number": "o-1", "cents": 42}),
    (dict[str, int], {"a": 1}),
    (list[int], [1, 2]),
    (Any, {"anything": [1, None]}),
]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=lambda one: getattr(one, "__name__", ""))
def test_what_was_encoded_is_read_as_the_same(kind: Any, value: Any) -> None:
    """Each kind of type that the documentation names."""
    codec = codec_of(kind)
    assert codec.decode(codec.encode(value)) == value


def test_a_table_travels_as_arrows_stream(pa: Any) -> None:
    """Any program with Arrow can read the body."""
    table = pa.table({"number": ["o-1", "o-2"], "cents": [1, 2]})
    codec = codec_of(pa.Table)
    body = codec.encode(table)
    assert pa.ipc.open_stream(body).read_all() == table == codec.decode(body)
    with pytest.raises(Undecodable, match="Arrow"):
        codec.decode(b"no table")


@pytest.mark.parametrize("kind", [Plain, Struct, Model, Typed], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("body", [b"", b"{", b'{"number": "o-1"}', b'{"number": "o-1", "cents": "x"}', b"\xff"])
def test_what_is_not_of_the_type_is_undecodable(kind: Any, body: bytes) -> None:
    """Fields are neither invented nor converted."""
    with pytest.raises(Undecodable):
        codec_of(kind).decode(body)


def test_bytes_that_are_no_text_are_undecodable() -> None:
    """A handler of str gets UTF-8 or nothing."""
    with pytest.raises(Undecodable, match="utf-8"):
        codec_of(str).decode(b"\xff")


def test_a_damaged_table_is_undecodable_or_readable_and_ends_no_process(pa: Any) -> None:
    """Arrow trusts the offsets in a stream; reading a table with wrong ones crashed the process."""
    table = pa.table(
        {"text": ["x", "y"] * 20, "many": [[1, 2], [3]] * 20, "few": pa.array(["k"] * 40).dictionary_encode()}
    )
    codec, chance, refused = codec_of(pa.Table), Randomness(5), 0
    good = codec.encode(table)
    for _ in range(3_000):
        body = bytearray(good)
        for _ in range((1, 2, 16)[chance.below(3)]):
            body[chance.below(len(body))] = chance.below(256)
        try:
            codec.decode(bytes(body)).validate(full=True)
        except Undecodable:
            refused += 1
    assert 1_000 < refused < 3_000


@pytest.mark.parametrize("kind", [Plain, Model, Any], ids=str)
@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"a":' * 200_000, b'"\\ud800"'])
def test_what_nests_too_deeply_or_is_no_text_is_undecodable(kind: Any, body: bytes) -> None:
    """It is parked without a retry, like any other body of another type."""
    with pytest.raises(Undecodable):
        codec_of(kind).decode(body)
