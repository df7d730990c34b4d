"""Bodies with schemas: protobuf and Avro, the property with the schema's id, and refusals that name the reason."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypedDict

import msgspec
import pytest

from ortoo.client import App, Invalid, PoppedMessage, avro_schema, connect
from ortoo.client.apps.codecs import SCHEMA_ID, Undecodable, codec_of
from ortoo.common.process.randomness import Randomness
from ortoo.testing.pytest_broker import Broker
from ortoo.v1 import topic_pb2


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    """The schema of an order."""
    return {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "number", "type": "string"}, *fields],
    }


CENTS = {"name": "cents", "type": "long"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
V1, V2 = record(CENTS), record(CENTS, NOTE)


@avro_schema(V1)
@dataclass
class OldOrder:
    """The first version."""

    number: str
    cents: int


@avro_schema(V2, older=[V1])
@dataclass
class Order:
    """The second version."""

    number: str
    cents: int
    note: str | None = None


@avro_schema(
    record(
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "raw", "type": "bytes"},
    )
)
class Struct(msgspec.Struct):
    """Logical types."""

    number: str
    at: datetime
    price: Decimal
    raw: bytes


@avro_schema(V1)
class Typed(TypedDict):
    """A dictionary with types."""

    number: str
    cents: int


VALUES = [
    OldOrder("o-1", 42),
    Order("o-1", 42, "soon"),
    Struct("o-1", datetime(2027, 1, 2, 3, tzinfo=UTC), Decimal("1.25"), b"\x00\xff"),
    topic_pb2.Queue(topic="t", enode="e", queue_id=3),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda one: type(one).__name__)
def test_what_was_encoded_is_read_as_the_same(value: Any) -> None:
    """Also with the id of the schema; the properties of a message name it."""
    codec = codec_of(type(value))
    body = codec.encode(value)
    assert codec.decode(body) == value == codec.read(body, codec.properties()[SCHEMA_ID])
    assert codec.read(body, "") == value


def test_a_typed_dictionary_may_have_a_schema() -> None:
    """Its values are plain dictionaries."""
    codec = codec_of(Typed)
    assert codec.decode(codec.encode({"number": "o-1", "cents": 42})) == {"number": "o-1", "cents": 42}


def test_a_protobuf_body_is_that_of_any_language() -> None:
    """And its schema is named by the message's full name."""
    codec = codec_of(topic_pb2.Queue)
    assert codec.encode(topic_pb2.Queue(topic="t")) == b"\n\x01t"
    assert codec.properties() == {SCHEMA_ID: "ortoo.v1.Queue"}


def test_a_reader_resolves_older_bodies_and_refuses_unknown_ones() -> None:
    """Without the id, an older Avro body would be misread."""
    old, new = codec_of(OldOrder), codec_of(Order)
    body = old.encode(OldOrder("o-1", 42))
    assert new.read(body, old.schema_id) == Order("o-1", 42, None)
    with pytest.raises(
        Undecodable, match=f"has the schema {new.schema_id}, and this program reads only {old.schema_id}"
    ):
        old.read(new.encode(Order("o-1", 42)), new.schema_id)
    with pytest.raises(Undecodable, match=r"ortoo\.v1\.Topic, and this program reads only ortoo\.v1\.Queue"):
        codec_of(topic_pb2.Queue).read(b"", "ortoo.v1.Topic")


@pytest.mark.parametrize("value", VALUES, ids=lambda one: type(one).__name__)
def test_damaged_bodies_are_undecodable_or_readable(value: Any) -> None:
    """No bytes raise another error."""
    codec, chance, refused = codec_of(type(value)), Randomness(3), 0
    good = codec.encode(value)
    for _ in range(1_000):
        body = bytearray(good)
        for _ in range((1, 2, 8)[chance.below(3)]):
            body[chance.below(len(body))] = chance.below(256)
        try:
            codec.decode(bytes(body[: chance.below(len(body) + 4)]))
        except Undecodable:
            refused += 1
    assert refused > 300


def test_bytes_behind_a_value_are_refused() -> None:
    """They show that the body has another schema."""
    with pytest.raises(Undecodable, match="2 bytes follow"):
        codec_of(OldOrder).decode(codec_of(OldOrder).encode(OldOrder("o-1", 42)) + b"xx")


@pytest.mark.parametrize("schema", [{"type": "recordd"}, {"type": "record"}, {}, "nothing"])
def test_a_wrong_schema_is_refused_when_it_is_declared(schema: Any) -> None:
    """The error names the field."""
    with pytest.raises(Invalid) as refused:
        avro_schema(schema)(dataclass(type("A", (), {})))
    assert refused.value.field == "schema"


@pytest.mark.ortoo(topics=["orders", "queues"])
async def test_a_refused_body_is_a_dead_letter_with_the_reason(broker: Broker) -> None:
    """A program sends and receives both kinds; a body of another schema is parked at once."""
    app, seen = App("shop"), list[Any]()
    orders, wrong = app.producer("orders", Order), app.producer("orders", Struct)
    queues = app.producer("queues", topic_pb2.Queue)

    @app.consumer("orders")
    async def take(order: Order, message: PoppedMessage) -> None:
        seen.append((order, message.properties[SCHEMA_ID]))

    @app.consumer("queues", group="other")
    async def look(queue: topic_pb2.Queue) -> None:
        seen.append(queue.topic)

    async with connect() as mq, app.running(mq):
        await orders.send(Order("o-1", 42, "soon"))
        await queues.send(topic_pb2.Queue(topic="t"))
        await wrong.send(Struct("o-2", datetime(2027, 1, 2, tzinfo=UTC), Decimal(1), b""))
        await broker.clock.advance(minutes=1)
    assert sorted(seen, key=str) == sorted([(Order("o-1", 42, "soon"), codec_of(Order).schema_id), "t"], key=str)
    (letter,) = await broker.dead_letters("shop")
    assert letter.error.startswith("Undecodable: the body has the schema ")


LINK = {"name": "next", "type": ["null", "shop.Chain"], "default": None}
CHAIN: dict[str, Any] = {"type": "record", "name": "Chain", "namespace": "shop", "fields": [LINK]}


@avro_schema(CHAIN, older=[{**CHAIN, "fields": [LINK, {**LINK, "name": "other"}]}])
@dataclass
class Chain:
    """A type that contains itself."""

    next: "Chain | None" = None


def test_a_deeply_nested_body_is_refused_and_ends_no_process() -> None:
    """The reader of fastavro in C overflows the stack at some thousand levels."""
    codec = codec_of(Chain)
    chain = Chain(Chain(Chain()))
    assert codec.decode(codec.encode(chain)) == chain
    for schema_id in (codec.schema_id, *codec.decoders):
        with pytest.raises(Undecodable, match="recursion"):
            codec.read(b"\x02" * 1_000_000, schema_id)


EMPTY: dict[str, Any] = {"type": "record", "name": "Empty", "fields": [{"name": "nothing", "type": "null"}]}


@pytest.mark.parametrize(
    "items",
    ["null", EMPTY, {"type": "fixed", "name": "None_", "size": 0}, {"type": "array", "items": "null"}],
)
def test_arrays_of_items_without_bytes_are_refused(items: Any) -> None:
    """A body of ten bytes would be an array of a billion items."""
    array = {"type": "array", "items": items}
    for kind in (array, ["null", array]):
        schema = {"type": "record", "name": "Many", "fields": [{"name": "items", "type": kind}]}
        with pytest.raises(Invalid, match="take no bytes"):
            avro_schema(schema)(dict)
        with pytest.raises(Invalid, match="take no bytes"):
            avro_schema({"type": "record", "name": "New", "fields": []}, older=[schema])(dict)


def test_other_arrays_are_accepted() -> None:
    """A union has its index, also for null."""
    array = {"type": "array", "items": ["null", "int"]}
    schema = {"type": "record", "name": "Good", "fields": [{"name": "items", "type": array}]}
    assert avro_schema(schema)(type("Good", (), {}))
