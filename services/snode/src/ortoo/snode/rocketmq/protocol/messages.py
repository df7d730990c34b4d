"""Conversion of messages between the protocol and Ortoo. All fields that a producer sets survive the round trip."""

import hashlib
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from apache.rocketmq.v2 import definition_pb2
from apache.rocketmq.v2.definition_pb2 import Code, DigestType, Encoding, MessageType
from ortoo.common.errors import Invalid
from ortoo.common.records.message import BODY_AS_IS, BODY_BYTES_MAX, BODY_GZIP, Message
from ortoo.common.records.message_fields import NO_RARE_FIELDS, RareFields
from ortoo.common.records.text_rules import (
    PROPERTIES_MAX,
    TEXT_BYTES_MAX,
    TRACEPARENT,
    is_traceparent,
    trace_context_of,
)
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError
from ortoo.snode.rocketmq.protocol.names import RESERVED_PROPERTIES, check_lite_topic

DELAY_MS_MAX = 366 * 86_400_000
RECOVERY_S_MAX = 3600
LITE_GROUP_LENGTH = 63
# Looked up once: each access to a member of a protobuf enum takes as long as five function calls.
NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY, LITE = map(
    MessageType.Value, ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE")
)
MD5, GZIP, IDENTITY = DigestType.MD5, Encoding.GZIP, Encoding.IDENTITY
_TYPE_OF_FIELD = {"delivery_timestamp": DELAY, "message_group": FIFO, "priority": PRIORITY, "lite_topic": LITE}
_BODY_ENCODINGS = {Encoding.ENCODING_UNSPECIFIED: BODY_AS_IS, Encoding.IDENTITY: BODY_AS_IS, Encoding.GZIP: BODY_GZIP}
SHARDING_KEY, TRANSACTION_ID = "__SHARDINGKEY", "__transactionId__"
"""Properties that RocketMQ adds for consumers: the message group, and the id of a transaction's message."""

T = TypeVar("T", Duration, Timestamp)


class SentMessage(NamedTuple):
    """A message that a client sends, and the protocol's options for sending it."""

    message: Message
    message_type: MessageType.ValueType
    recovery_s: int | None = None
    """When an open transaction is first checked; None = the group's default."""
    lite_topic: str = ""


class DeliveryInfo(NamedTuple):
    """The location of a message, and the data of its delivery to a consumer."""

    topic: str
    enode: str
    queue_id: int
    offset: int
    stored_at_ms: int
    message_id: str
    attempt: int = 1
    receipt_handle: str = ""
    invisible_ms: int = 0
    is_transaction: bool = False
    lite_topic: str = ""


def read_message(sent: definition_pb2.Message, index: int, now_ms: int, peer: Callable[[], str]) -> SentMessage:
    """Decode and check `sent`, message `index` of a request. Errors: GrpcProxyError, Invalid, naming the field."""
    system, given = sent.system_properties, sent.user_properties
    properties = dict(given) if given else NO_RARE_FIELDS.properties
    if len(properties) > 1:
        properties = dict(sorted(properties.items()))  # the order of a protobuf map is random
    _check_sizes(sent, properties, index)
    kind, deliver_at_ms = message_type(sent, index), None
    if kind != NORMAL and system.HasField("delivery_timestamp"):
        deliver_at_ms = to_ms(system.delivery_timestamp)
    if deliver_at_ms is not None and deliver_at_ms > now_ms + DELAY_MS_MAX:
        ahead_ms = deliver_at_ms - now_ms
        raise GrpcProxyError(
            Code.ILLEGAL_DELIVERY_TIME, f"messages[{index}] is due in {ahead_ms} ms; give at most {DELAY_MS_MAX} ms"
        )
    if not system.message_id.strip():
        raise GrpcProxyError(Code.ILLEGAL_MESSAGE_ID, f"messages[{index}] has no message id; the producer must set one")
    if system.body_encoding not in _BODY_ENCODINGS:
        raise GrpcProxyError(
            Code.MESSAGE_CORRUPTED, f"messages[{index}]: body encoding {system.body_encoding} is unknown"
        )
    rare = RareFields(
        message_group=None if kind == NORMAL else _message_group(system, kind),
        properties=properties,
        message_id=system.message_id,
        born_at_ms=to_ms(system.born_timestamp) if system.HasField("born_timestamp") else now_ms,
        deliver_at_ms=deliver_at_ms if kind == DELAY else None,
        priority=system.priority if kind == PRIORITY else None,
        body_encoding=_BODY_ENCODINGS[system.body_encoding],
        born_host=system.born_host or peer(),
        trace_context=trace_context_of(system.trace_context if system.HasField("trace_context") else None, properties),
    )
    message = Message.of(sent.body, system.tag if system.HasField("tag") else None, tuple(system.keys), rare)
    message.check(f"messages[{index}]")
    recovery_s = None
    if system.HasField("orphaned_transaction_recovery_duration"):
        recovery_s = system.orphaned_transaction_recovery_duration.seconds
        if not 0 <= recovery_s <= RECOVERY_S_MAX:
            raise GrpcProxyError(
                Code.BAD_REQUEST,
                f"messages[{index}] has a recovery time of {recovery_s} s; give at most {RECOVERY_S_MAX} s",
            )
    return SentMessage(message, kind, recovery_s, system.lite_topic if kind == LITE else "")


def write_message(message: Message, info: DeliveryInfo, namespace: str = "") -> definition_pb2.Message:
    """Encode a message for a consumer, with all fields that any client requires."""
    written = definition_pb2.Message()
    fill_message(written, message, info, namespace)
    return written


def fill_message(written: definition_pb2.Message, message: Message, info: DeliveryInfo, namespace: str = "") -> None:
    """Like `write_message`, into an empty message.

    The fields are set in place, because assembling the message from separate parts takes twice as long.
    """
    system, topic, rare = written.system_properties, written.topic, message.rare
    written.body = message.body
    topic.name = info.topic
    if namespace:
        topic.resource_namespace = namespace
    if rare.properties:
        properties = written.user_properties
        for name, value in rare.properties.items():  # the method `update` takes three times as long
            properties[name] = value
    if message.tag is not None:
        system.tag = message.tag
    if message.keys:
        system.keys.extend(message.keys)
    system.message_id = rare.message_id or info.message_id
    digest = system.body_digest
    digest.type, digest.checksum = MD5, md5_text(message.body)
    system.body_encoding = GZIP if rare.body_encoding == BODY_GZIP else IDENTITY
    system.message_type = _delivered_type(rare, info)
    _set_ms(system.born_timestamp, rare.born_at_ms or info.stored_at_ms)
    system.born_host = rare.born_host or ""
    _set_ms(system.store_timestamp, info.stored_at_ms)
    system.store_host, system.queue_id, system.queue_offset = info.enode, info.queue_id, info.offset
    system.delivery_attempt = max(1, info.attempt)
    if info.receipt_handle:
        system.receipt_handle = info.receipt_handle
    if info.invisible_ms:
        _set_ms(system.invisible_duration, info.invisible_ms)
    _fill_unusual(written, rare, info)


def _fill_unusual(written: definition_pb2.Message, rare: RareFields, info: DeliveryInfo) -> None:
    """Encode what few messages have."""
    system = written.system_properties
    if rare.deliver_at_ms is not None:
        _set_ms(system.delivery_timestamp, rare.deliver_at_ms)
    if info.lite_topic:
        system.lite_topic = info.lite_topic
    elif rare.message_group is not None:
        system.message_group = written.user_properties[SHARDING_KEY] = rare.message_group
    if info.is_transaction:
        written.user_properties[TRANSACTION_ID] = system.message_id
    if rare.priority is not None:
        system.priority = rare.priority
    if rare.trace_context is not None:
        system.trace_context = rare.trace_context
        if is_traceparent(rare.trace_context):  # OpenTelemetry's agents read the property
            written.user_properties.setdefault(TRACEPARENT, rare.trace_context)


def md5_text(body: bytes) -> str:
    """The MD5 digest of the stored bytes in upper-case hexadecimal; no other digest is read alike by all clients."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest().upper()


def timestamp(time_ms: int) -> Timestamp:
    """The protobuf timestamp of a time in milliseconds since 1970."""
    return _set_ms(Timestamp(), time_ms)


def duration(ms: int) -> Duration:
    """The protobuf duration of `ms` milliseconds."""
    return _set_ms(Duration(), ms)


def _set_ms(time: T, ms: int) -> T:
    time.seconds, time.nanos = ms // 1000, ms % 1000 * 1_000_000
    return time


def to_ms(time: Duration | Timestamp) -> int:
    """Convert a timestamp or a duration to whole milliseconds."""
    return int(time.seconds) * 1000 + int(time.nanos) // 1_000_000


def message_type(sent: definition_pb2.Message, index: int) -> MessageType.ValueType:
    """The type of a message, derived from the fields that are set. Only TRANSACTION is taken from the type field."""
    system = sent.system_properties
    if system.message_type == TRANSACTION:
        return TRANSACTION
    requested = [kind for field, kind in _TYPE_OF_FIELD.items() if system.HasField(field)]  # type: ignore[arg-type]
    if LITE in requested and len(requested) > 1:
        message = f"messages[{index}] is for a lite topic and has another type as well"
        raise GrpcProxyError(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, message)
    return requested[0] if requested else NORMAL


def _delivered_type(rare: RareFields, info: DeliveryInfo) -> MessageType.ValueType:
    if info.is_transaction:
        return TRANSACTION
    if info.lite_topic:
        return LITE
    if rare.deliver_at_ms is not None:
        return DELAY
    if rare.message_group is not None:
        return FIFO
    return PRIORITY if rare.priority is not None else NORMAL


def _message_group(system: definition_pb2.SystemProperties, kind: MessageType.ValueType) -> str | None:
    """The message group of a message. All messages of a lite topic are one message group, and therefore ordered."""
    if kind == LITE:
        # Names of lite topics may be longer than message groups; one topic holds one group anyway.
        return check_lite_topic(system.lite_topic)[:LITE_GROUP_LENGTH]
    return system.message_group if system.HasField("message_group") else None


def _check_sizes(sent: definition_pb2.Message, properties: Mapping[str, str], index: int) -> None:
    """Check the sizes of body and properties. Errors: GrpcProxyError, Invalid for a property with a reserved name."""
    system, body_bytes = sent.system_properties, len(sent.body)
    if not body_bytes:
        raise GrpcProxyError(Code.MESSAGE_BODY_EMPTY, f"messages[{index}] has no body; a message needs at least 1 byte")
    if body_bytes > BODY_BYTES_MAX:
        message = f"messages[{index}] has a body of {body_bytes} bytes; at most {BODY_BYTES_MAX} fit"
        raise GrpcProxyError(Code.MESSAGE_BODY_TOO_LARGE, message)
    if len(properties) > PROPERTIES_MAX:
        message = f"messages[{index}] has {len(properties)} properties; at most {PROPERTIES_MAX} fit"
        raise GrpcProxyError(Code.MESSAGE_PROPERTIES_TOO_LARGE, message)
    if not (properties or system.tag or system.keys):
        return
    size = len("".join((system.tag, *system.keys, *properties, *properties.values())).encode())
    if size > TEXT_BYTES_MAX:
        message = f"messages[{index}] has {size} bytes of tag, keys and properties; at most {TEXT_BYTES_MAX} fit"
        raise GrpcProxyError(Code.MESSAGE_PROPERTIES_TOO_LARGE, message)
    if not RESERVED_PROPERTIES.isdisjoint(properties):
        name = next(name for name in properties if name in RESERVED_PROPERTIES)
        raise Invalid(f"{name!r} is reserved by RocketMQ; choose another name", field=f"messages[{index}].properties")
