"""Messages keep all fields through the gateway, and invalid ones are refused with the right code."""

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from apache.rocketmq.v2 import definition_pb2
from apache.rocketmq.v2.definition_pb2 import Code, DigestType, Encoding, MessageType, Resource, SystemProperties
from ortoo.common.errors import Invalid
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError, status_of
from ortoo.snode.rocketmq.protocol.messages import DELAY_MS_MAX, DeliveryInfo, read_message, timestamp, write_message

NOW_MS = 1_790_000_000_000
PLACE = DeliveryInfo("t", "enode-0", 3, 17, NOW_MS + 5, "made", attempt=2, receipt_handle="h", invisible_ms=1500)
TEXT = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FFF, exclude_characters="|\x7f"), min_size=1, max_size=20
).filter(lambda text: text.isprintable())

TRACEPARENT = f"00-{'4b' * 16}-{'f0' * 8}-01"


def sent(**system: object) -> definition_pb2.Message:
    """A message with a body, an id and more."""
    return definition_pb2.Message(
        topic=Resource(name="t"),
        body=b"body",
        system_properties=SystemProperties(**({"message_id": "id-1"} | system)),  # type: ignore[arg-type]
    )


def test_consumers_find_what_rocketmq_adds_to_the_properties() -> None:
    """The message group, whatever the producer had copied there, and the id of a transaction's message."""
    message = sent(message_group="g1")
    message.user_properties["__SHARDINGKEY"] = "of an earlier message"
    read = read_message(message, 0, NOW_MS, lambda: "").message
    assert write_message(read, PLACE).user_properties == {"__SHARDINGKEY": "g1"}
    read = read_message(sent(message_type=MessageType.TRANSACTION), 0, NOW_MS, lambda: "").message
    half = write_message(read, PLACE._replace(is_transaction=True))
    assert half.user_properties == {"__transactionId__": "id-1"}


@given(
    body=st.binary(min_size=1, max_size=100),
    tag=st.none() | TEXT,
    keys=st.lists(TEXT, max_size=3),
    properties=st.dictionaries(
        TEXT.map("p-{}".format), st.text(st.characters(min_codepoint=32, max_codepoint=126)), max_size=4
    ),
    encoding=st.sampled_from([Encoding.IDENTITY, Encoding.GZIP]),
    born_at_ms=st.integers(1, NOW_MS),
    trace=st.none() | TEXT,
)
def test_what_was_sent_is_what_is_delivered(
    body: bytes,
    tag: str | None,
    keys: list[str],
    properties: dict[str, str],
    encoding: "Encoding.ValueType",
    born_at_ms: int,
    trace: str | None,
) -> None:
    """Body, tag, keys, properties, id, encoding, birth and trace are unchanged."""
    message = sent(keys=keys, body_encoding=encoding, born_timestamp=timestamp(born_at_ms), born_host="here")
    message.body = body
    message.user_properties.update(properties)
    if tag is not None:
        message.system_properties.tag = tag
    if trace is not None:
        message.system_properties.trace_context = trace
    back = write_message(read_message(message, 0, NOW_MS, lambda: "peer").message, PLACE)
    assert (back.body, dict(back.user_properties), back.topic.name) == (body, properties, "t")
    system = back.system_properties
    for field in ("tag", "keys", "message_id", "body_encoding", "born_timestamp", "born_host", "trace_context"):
        assert getattr(system, field) == getattr(message.system_properties, field)
    assert system.HasField("tag") == (tag is not None)


def test_a_trace_context_in_the_property_of_the_standard_is_read_and_written() -> None:
    """The column is empty or the property is: each gets the value of the other. Another text stays a property."""
    message = sent()
    message.user_properties["traceparent"] = TRACEPARENT
    stored = read_message(message, 0, NOW_MS, str).message
    assert stored.trace_context == TRACEPARENT
    in_column = read_message(sent(trace_context=TRACEPARENT), 0, NOW_MS, str).message
    for each in (stored, in_column):
        written = write_message(each, PLACE)
        assert written.system_properties.trace_context == TRACEPARENT
        assert dict(written.user_properties) == {"traceparent": TRACEPARENT}
    message.system_properties.trace_context = "own"
    back = write_message(read_message(message, 0, NOW_MS, str).message, PLACE)
    assert (back.system_properties.trace_context, back.user_properties["traceparent"]) == ("own", TRACEPARENT)
    for other in ("", "x" * 2000, TRACEPARENT.upper()):
        message = sent()
        message.user_properties["traceparent"] = other
        assert read_message(message, 0, NOW_MS, str).message.trace_context is None


def test_a_delivery_has_what_some_client_cannot_do_without() -> None:
    """Digest, encoding, attempt, handle, queue, offset, times and type are always there."""
    system = write_message(read_message(sent(), 0, NOW_MS, lambda: "peer").message, PLACE).system_properties
    assert (system.body_digest.type, system.body_digest.checksum) == (
        DigestType.MD5,
        "841A2D689AD86BD1611447453C22C6FC",
    )
    assert system.body_encoding == Encoding.IDENTITY
    assert system.message_type == MessageType.NORMAL
    assert (system.delivery_attempt, system.receipt_handle, system.queue_id, system.queue_offset) == (2, "h", 3, 17)
    assert system.born_timestamp == Timestamp(seconds=NOW_MS // 1000)
    assert system.store_timestamp == Timestamp(seconds=NOW_MS // 1000, nanos=5_000_000)
    assert system.invisible_duration == Duration(seconds=1, nanos=500_000_000)
    assert system.born_host == "peer"


@pytest.mark.parametrize(
    ("system", "kind"),
    [
        ({}, MessageType.NORMAL),
        ({"message_group": "g"}, MessageType.FIFO),
        ({"delivery_timestamp": timestamp(NOW_MS + 1)}, MessageType.DELAY),
        ({"priority": 3}, MessageType.PRIORITY),
        ({"lite_topic": "x"}, MessageType.LITE),
        ({"message_type": MessageType.TRANSACTION}, MessageType.TRANSACTION),
        ({"message_type": MessageType.TRANSACTION, "message_group": "g"}, MessageType.TRANSACTION),
        ({"delivery_timestamp": timestamp(NOW_MS + 1), "message_group": "g"}, MessageType.DELAY),
        ({"message_type": MessageType.FIFO}, MessageType.NORMAL),
    ],
)
def test_properties_tell_the_type_and_the_type_field_only_transactions(system: dict[str, object], kind: int) -> None:
    """Clients set the type carelessly; the properties decide."""
    assert read_message(sent(**system), 0, NOW_MS, str).message_type == kind


def damaged(
    body: bytes = b"body", properties: dict[str, str] | None = None, **system: object
) -> definition_pb2.Message:
    """A message with a body, properties or system properties of the test."""
    message = sent(**system)
    message.body = body
    message.user_properties.update(properties or {})
    return message


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (damaged(body=b""), Code.MESSAGE_BODY_EMPTY),
        (damaged(body=bytes((4 << 20) + 1)), Code.MESSAGE_BODY_TOO_LARGE),
        (damaged(message_id=" "), Code.ILLEGAL_MESSAGE_ID),
        (damaged(tag="a|b"), Code.ILLEGAL_MESSAGE_TAG),
        (damaged(tag="  "), Code.ILLEGAL_MESSAGE_TAG),
        (damaged(tag="a\x00"), Code.ILLEGAL_MESSAGE_TAG),
        (damaged(keys=["  "]), Code.ILLEGAL_MESSAGE_KEY),
        (damaged(keys=["a\x1f"]), Code.ILLEGAL_MESSAGE_KEY),
        (damaged(message_group=" "), Code.ILLEGAL_MESSAGE_GROUP),
        (damaged(message_group="g" * 64), Code.ILLEGAL_MESSAGE_GROUP),
        (damaged(properties={"TAGS": "x"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (damaged(properties={"a\x00": "x"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (damaged(properties={"a": "\x7f"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (damaged(properties={f"p{n}": "" for n in range(129)}), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (damaged(properties={"p": "x" * (16 << 10)}), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (damaged(delivery_timestamp=timestamp(NOW_MS + DELAY_MS_MAX + 1)), Code.ILLEGAL_DELIVERY_TIME),
        (damaged(orphaned_transaction_recovery_duration=Duration(seconds=3601)), Code.BAD_REQUEST),
        (damaged(lite_topic="x", priority=1), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (damaged(body_encoding=7), Code.MESSAGE_CORRUPTED),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_code(message: definition_pb2.Message, code: int) -> None:
    """Each limit of the protocol has a code, and the text names the message."""
    with pytest.raises((GrpcProxyError, Invalid), match=r"messages\[4\]") as caught:
        read_message(message, 4, NOW_MS, str)
    error = caught.value
    assert isinstance(error, GrpcProxyError | Invalid)
    assert status_of(error).code == code
