"""Conversion of the replicas' messages to and from protobuf: field by field, except for the bytes of the log."""

from typing import Any

from ortoo.common.errors import Invalid
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.grpc.messages import read, write
from ortoo.enode.log.copies.frame_copies import frames_in
from ortoo.enode.log.copies.protocol_frames import WORDS, mark_of
from ortoo.enode.log.frame import BadFrame
from ortoo.enode.replication.protocol import messages
from ortoo.enode.replication.protocol.identity import Process
from ortoo.enode.replication.protocol.messages import Frames, Message
from ortoo.v1 import members_pb2 as pb

_WORDS: dict[str, Any] = {
    field.name: getattr(messages, field.message_type.name)
    for field in pb.MemberMessage.DESCRIPTOR.oneofs_by_name["word"].fields
    if field.message_type
}
"""Field name to the class of the message, which has the name of its protobuf message."""
_NAMES: dict[type, tuple[str, Any]] = {
    kind: (name, getattr(pb.MemberMessage, kind.__name__)) for name, kind in _WORDS.items()
}


def encode_word(message: Message) -> Bulky:
    """Encode a message."""
    if isinstance(message, Frames):
        head = {name: getattr(message, name) for name in ("epoch", "stream", "begin", "end", "committed")}
        frames = pb.MemberMessage.Frames(**head, follower=write(pb.MemberProcess, message.follower))
        return Bulky(pb.MemberMessage(frames=frames), message.content)
    name, kind = _NAMES[type(message)]
    return Bulky(pb.MemberMessage(**{name: write(kind, message)}))


def is_answered(message: Message) -> bool:
    """Whether the stream confirms the message. Frames and acknowledgements are frequent and answered by messages."""
    return not isinstance(message, Frames | messages.Ack)


def decode_word(message: pb.MemberMessage, content: memoryview) -> Message | None:
    """Decode a message and its log frames; None for one of a newer version. Errors: Invalid (incomplete frames)."""
    name = message.WhichOneof("word")
    if name == "frames":
        return _frames(message.frames, content)
    word: Message | None = read(_WORDS[name], getattr(message, name)) if name else None
    return word


def _frames(message: pb.MemberMessage.Frames, content: memoryview) -> Frames:
    try:
        frames = tuple(frames_in(content, message.begin))
    except BadFrame as error:
        raise Invalid(f"the frames from {message.begin} arrived damaged: {error}", field="frames.content") from error
    if message.begin + len(content) != message.end:
        raise Invalid(f"{len(content)} bytes from {message.begin} do not end at {message.end}", field="frames.end")
    marks = tuple(mark_of(frame.header, frame.body) for frame in frames if frame.header.kind in WORDS)
    follower = read(Process, message.follower)
    return Frames(message.epoch, follower, message.stream, message.begin, message.end, marks, message.committed, frames)
