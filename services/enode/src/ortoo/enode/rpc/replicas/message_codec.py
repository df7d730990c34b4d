"""Conversion of the replicas' messages to and from protobuf: field by field, except for the bytes of the log."""

from typing import Any

from ortoo.common.errors import Invalid
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.grpc.messages import read, write
from ortoo.enode.log.copies.frame_copies import frames_in
from ortoo.enode.log.copies.protocol_frames import PROTOCOL_KINDS, decode_protocol_frame
from ortoo.enode.log.frame import BadFrame
from ortoo.enode.replication.protocol import messages
from ortoo.enode.replication.protocol.identity import Incarnation
from ortoo.enode.replication.protocol.messages import Frames, Message
from ortoo.v1 import replication_pb2 as pb

_MESSAGES: dict[str, Any] = {
    field.name: getattr(messages, field.message_type.name)
    for field in pb.ReplicaMessage.DESCRIPTOR.oneofs_by_name["content"].fields
    if field.message_type
}
"""Field name to the class of the message, which has the name of its protobuf message."""
_NAMES: dict[type, tuple[str, Any]] = {
    kind: (name, getattr(pb.ReplicaMessage, kind.__name__)) for name, kind in _MESSAGES.items()
}


def encode_message(message: Message) -> BulkMessage:
    """Encode a message."""
    if isinstance(message, Frames):
        head = {name: getattr(message, name) for name in ("epoch", "stream", "begin", "end", "committed")}
        frames = pb.ReplicaMessage.Frames(**head, follower=write(pb.ReplicaIncarnation, message.follower))
        return BulkMessage(pb.ReplicaMessage(frames=frames), message.content)
    name, kind = _NAMES[type(message)]
    return BulkMessage(pb.ReplicaMessage(**{name: write(kind, message)}))


def needs_response(message: Message) -> bool:
    """Whether the stream confirms the message. False for frames and acknowledgements, which are frequent."""
    return not isinstance(message, Frames | messages.AppendAck)


def decode_message(message: pb.ReplicaMessage, content: memoryview) -> Message | None:
    """Decode a message and its log frames; None if its type is unknown. Errors: Invalid (incomplete frames)."""
    name = message.WhichOneof("content")
    if name == "frames":
        return _decode_frames(message.frames, content)
    decoded: Message | None = read(_MESSAGES[name], getattr(message, name)) if name else None
    return decoded


def _decode_frames(message: pb.ReplicaMessage.Frames, content: memoryview) -> Frames:
    try:
        frames = tuple(frames_in(content, message.begin))
    except BadFrame as error:
        raise Invalid(f"the frames from {message.begin} arrived damaged: {error}", field="frames.content") from error
    if message.begin + len(content) != message.end:
        raise Invalid(f"{len(content)} bytes from {message.begin} do not end at {message.end}", field="frames.end")
    protocol_frames = tuple(
        decode_protocol_frame(frame.header, frame.body) for frame in frames if frame.header.kind in PROTOCOL_KINDS
    )
    follower = read(Incarnation, message.follower)
    return Frames(
        message.epoch, follower, message.stream, message.begin, message.end, protocol_frames, message.committed, frames
    )
