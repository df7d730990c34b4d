"""Every list of every request has a limit, and a request above it is refused before its handler sees it."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.errors import Invalid
from ortoo.common.grpc.bulk_calls import MEMBER_MESSAGE
from ortoo.common.grpc.limits.element_limits import ELEMENTS_MAX
from ortoo.common.grpc.limits.raw_elements import FIELDS_MAX, UNCOUNTED_BYTES, WEIGHT_MAX
from ortoo.common.grpc.limits.request_shape import counted, shape_of
from ortoo.common.grpc.messages import is_repeated
from ortoo.common.records.wire import bytes_field, varint
from ortoo.v1 import consumer_pb2, producer_pb2, record_pb2, replication_pb2
from tests.hostile.contract import METHODS, path_of

ACK = "/ortoo.v1.ConsumerService/Ack"
PUBLISH = "/ortoo.v1.ProducerService/Publish"


def ways_to_lists(
    descriptor: Descriptor, above: tuple[FieldDescriptor, ...] = ()
) -> Iterator[tuple[FieldDescriptor, ...]]:
    """The fields that lead to each list of a message, the list itself last."""
    for field in descriptor.fields:
        way = (*above, field)
        if is_repeated(field):
            yield way
        if field.message_type is not None:
            yield from ways_to_lists(field.message_type, way)


WAYS = {
    f"{path_of(method)} {'.'.join(field.name for field in way)}": (path_of(method), method, way)
    for method in METHODS
    for way in ways_to_lists(method.input_type)
}


def element_of(field: FieldDescriptor) -> bytes:
    """One element of a list, the shortest there is, with its key."""
    if field.message_type is not None or field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return bytes_field_even_empty(field.number, b"")
    if field.type in (FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64, FieldDescriptor.TYPE_DOUBLE):
        return varint(field.number << 3 | 1) + bytes(8)
    return varint(field.number << 3) + b"\0"


def bytes_field_even_empty(number: int, data: bytes) -> bytes:
    """Like `bytes_field`, but it also writes empty fields."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def with_elements(way: tuple[FieldDescriptor, ...], count: int) -> bytes:
    """A request whose list at the end of `way` has this many elements; map entries are all different."""
    *above, field = way
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        data = b"".join(bytes_field_even_empty(field.number, bytes_field(1, str(n).encode())) for n in range(count))
    else:
        data = element_of(field) * count
    for outer in reversed(above):
        data = bytes_field_even_empty(outer.number, data)
    return data


def read(method: MethodDescriptor, path: str, data: bytes) -> Message:
    """The request, read as by a server."""
    request: Message = counted(path, GetMessageClass(method.input_type).FromString)(data)
    return request


def test_every_method_has_limits_for_all_its_lists() -> None:
    """The shape of a request cannot be made without limits, and each row of the table is used."""
    assert len(METHODS) > 100
    reached = {way[-1].full_name for _, _, way in WAYS.values()}
    for method in METHODS:
        assert shape_of(path_of(method)) is not None
    assert reached == set(ELEMENTS_MAX)


@pytest.mark.parametrize("name", WAYS)
def test_a_list_may_have_as_many_elements_as_its_limit_and_no_more(name: str) -> None:
    """The refusal names the list, the limit, and the remedy."""
    path, method, way = WAYS[name]
    limit = ELEMENTS_MAX[way[-1].full_name]
    read(method, path, with_elements(way, limit))
    with pytest.raises(
        Invalid, match=f"has more than {limit} elements; send at most {limit} in one request"
    ) as refused:
        read(method, path, with_elements(way, limit + 1))
    assert refused.value.field == ".".join(field.name for field in way)
    assert refused.value.message.startswith(refused.value.field)


@pytest.mark.parametrize(
    ("path", "data", "said"),
    [
        (PUBLISH, b"\x12\x00" * (4 << 20), "messages has more than 4096 elements"),
        (PUBLISH, b"\x92\x80\x00\x80\x00" * (1 << 20), "messages has more than 4096 elements"),
        (PUBLISH, bytes_field(2, b"\x1a\x00" * 4_000) * 1_000, "protobuf fields; send less in one request"),
        (ACK, bytes_field(1, bytes_field(2, b"\x01" * 8_000)) * 1_000, "too many elements together, receipts.offsets"),
    ],
    ids=["elements", "keys longer than necessary", "short lists", "packed numbers"],
)
def test_a_large_request_is_refused_before_it_is_decoded(path: str, data: bytes, said: str) -> None:
    """Holds for all kinds of lists, and all encodings of their keys."""

    def decoded(_: bytes) -> Any:
        raise AssertionError("it was decoded")

    with pytest.raises(Invalid, match=said):
        counted(path, decoded)(data)


def test_parts_of_one_message_count_together() -> None:
    """Protobuf merges a message that comes in pieces; each piece alone is within the limit."""
    limit = ELEMENTS_MAX["ortoo.v1.OpenSession.zones"]
    piece = bytes_field(1, bytes_field(12, b"") or b"\x62\x00" * limit)
    path = "/ortoo.v1.ConsumerService/Push"
    reading = counted(path, consumer_pb2.PushRequest.FromString)
    assert len(reading(piece).open.zones) == limit
    for pieces in (2, 200):
        with pytest.raises(Invalid, match=r"open\.zone\w* has more than"):
            reading(piece * pieces)


def test_packed_numbers_are_counted_exactly() -> None:
    """A number takes one to ten bytes."""
    limit = ELEMENTS_MAX["ortoo.v1.NackMessagesRequest.offsets"]
    path = "/ortoo.v1.ConsumerService/NackMessages"
    for number in (1, 1 << 40):
        request = consumer_pb2.DESCRIPTOR.pool.FindMessageTypeByName("ortoo.v1.NackMessagesRequest")
        message: Any = GetMessageClass(request)(offsets=[number] * limit)
        assert len(counted(path, type(message).FromString)(message.SerializeToString()).offsets) == limit
        message.offsets.append(number)
        with pytest.raises(Invalid, match="offsets has more than"):
            counted(path, type(message).FromString)(message.SerializeToString())


@pytest.mark.parametrize("size", [9_000, 300_000, 4 << 20])
@pytest.mark.parametrize("byte", [b"\x12", b"\x1a", b"\0", b"*"])
def test_a_large_body_is_no_list(size: int, byte: bytes) -> None:
    """Bytes that look like keys of lists are not counted within a body."""
    request = producer_pb2.PublishRequest(topic="t", messages=[record_pb2.Message(body=byte * size)])
    assert counted(PUBLISH, producer_pb2.PublishRequest.FromString)(request.SerializeToString()) == request


def test_the_largest_ordinary_requests_pass() -> None:
    """As many messages as a batch holds, with keys and properties, of any size; as many acknowledgements."""
    for size in (1, 1_000, 1_800):
        message = record_pb2.Message(body=b"*" * size, tag="t", keys=["a", "b"], properties={"a": "b", "c": "d"})
        request = producer_pb2.PublishRequest(topic="t", messages=[message] * 4_096)
        assert counted(PUBLISH, producer_pb2.PublishRequest.FromString)(request.SerializeToString()) == request


@given(st.binary(max_size=64).map(lambda piece: piece * (UNCOUNTED_BYTES // max(1, len(piece)) + 1)))
def test_bytes_without_sense_are_refused_as_protobuf_refuses_them(data: bytes) -> None:
    """A request that raises DecodeError is malformed, or uses wire types that no request has; no other error occurs."""
    with contextlib.suppress(Invalid, DecodeError):
        counted(PUBLISH, producer_pb2.PublishRequest.FromString)(data)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.binary(max_size=300)), min_size=1, max_size=4),
    st.integers(1, 200),
)
def test_what_is_accepted_is_what_protobuf_reads(kinds: list[tuple[int, int, bytes]], times: int) -> None:
    """Counting changes nothing of a request within the limits."""
    messages = [
        record_pb2.Message(body=body, keys=["k"] * keys, properties={str(n): "v" for n in range(properties)})
        for keys, properties, body in kinds
    ]
    request = producer_pb2.PublishRequest(topic="t", messages=messages * times)
    assert counted(PUBLISH, producer_pb2.PublishRequest.FromString)(request.SerializeToString()) == request


def test_the_limits_leave_room_for_what_one_field_may_have() -> None:
    """A request whose one list is full weighs less than a request may weigh."""
    assert max(ELEMENTS_MAX.values()) * 2 <= WEIGHT_MAX
    assert max(ELEMENTS_MAX.values()) <= FIELDS_MAX


@pytest.mark.parametrize("size_bytes", [1_000, 20_000, 60_000, 1_000_000])
def test_requests_with_bulk_are_measured_as_others(size_bytes: int) -> None:
    """Their reader returns the message and the bulk separately: the lists are those of the message."""
    read = counted("/ortoo.v1.ReplicationService/Exchange", MEMBER_MESSAGE.read)
    message = replication_pb2.ReplicaMessage(frames=replication_pb2.ReplicaMessage.Frames(content=bytes(size_bytes)))
    assert sum(map(len, read(message.SerializeToString()).bulks)) in (0, size_bytes)
    number = ELEMENTS_MAX["ortoo.v1.ReplicaConfiguration.voters"] + 1
    for _ in range(number):
        message.log_match_response.base.configuration.voters.add()
    with pytest.raises(Invalid, match="voters"):
        read(message.SerializeToString())
