"""What members say to each other, as it travels and as the protocol has it: field by field, but for the log itself."""

from typing import Any

from ortoo.common.errors import Invalid
from ortoo.common.grpc.fields import read, write
from ortoo.enode.log.copies.copying import frames_in
from ortoo.enode.log.copies.words import marks_in
from ortoo.enode.log.frame import BadFrame
from ortoo.enode.members import messages
from ortoo.enode.members.identity import Process
from ortoo.enode.members.messages import Frames, Message
from ortoo.v1 import members_pb2 as pb

_WORDS: dict[str, Any] = {
    "promise_ask": messages.PromiseAsk,
    "promise": messages.Promise,
    "newer": messages.Newer,
    "heartbeat": messages.Heartbeat,
    "heartbeat_answer": messages.HeartbeatAnswer,
    "match_ask": messages.MatchAsk,
    "match_answer": messages.MatchAnswer,
    "matched": messages.Matched,
    "ack": messages.Ack,
    "released": messages.Released,
    "handed_over": messages.HandedOver,
}
_NAMES: dict[type, tuple[str, Any]] = {
    kind: (name, getattr(pb.MemberMessage, kind.__name__)) for name, kind in _WORDS.items()
}


def encode_word(message: Message) -> pb.MemberMessage:
    """A word as it travels."""
    if isinstance(message, Frames):
        frames = pb.MemberMessage.Frames(
            epoch=message.epoch,
            follower=write(pb.MemberProcess, message.follower),
            stream=message.stream,
            begin=message.begin,
            end=message.end,
            committed=message.committed,
            content=message.content,  # type: ignore[arg-type]  # bytes, as the driver gave them
        )
        return pb.MemberMessage(frames=frames)
    name, kind = _NAMES[type(message)]
    return pb.MemberMessage(**{name: write(kind, message)})


def is_answered(message: Message) -> bool:
    """Whether the stream says that the word has come; what is said often and is answered by words is not."""
    return not isinstance(message, Frames | messages.Ack)


def decode_word(message: pb.MemberMessage) -> Message | None:
    """A word that came; None for one of a newer version. Errors: Invalid for frames that are not whole."""
    name = message.WhichOneof("word")
    if name == "frames":
        return _frames(message.frames)
    kind = _WORDS.get(name or "")
    word: Message | None = read(kind, getattr(message, name)) if kind is not None and name else None
    return word


def _frames(message: pb.MemberMessage.Frames) -> Frames:
    content = message.content
    try:
        marks = marks_in((frame.header, frame.body) for frame in frames_in(content, message.begin))
    except BadFrame as error:
        raise Invalid(f"the frames from {message.begin} came damaged: {error}", field="frames.content") from error
    if message.begin + len(content) != message.end:
        raise Invalid(f"{len(content)} bytes from {message.begin}, and not up to {message.end}", field="frames.end")
    follower = read(Process, message.follower)
    return Frames(
        message.epoch, follower, message.stream, message.begin, message.end, marks, message.committed, content
    )
