"""The other members, as this one speaks to them: one stream each, with what can be lost lost."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from ortoo.common.errors import Conflict, OrtooError, Unavailable
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.fields import read, write
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.enode import log_events
from ortoo.enode.members.identity import MemberId
from ortoo.enode.members.messages import Frames, Message
from ortoo.enode.rpc.members.words import encode_word, is_answered
from ortoo.v1 import member_report_pb2, members_pb2
from ortoo.v1 import members_pb2 as pb
from ortoo.v1.members_pb2_grpc import MemberServiceStub

RETRY_S = 0.1
"""How long after a broken stream the next one is begun."""
CONNECT_TIMEOUT_S = 1.0
SILENCE_S = 1.0
"""A stream on which nothing is answered for so long is given up with its connection: it may lead to a former start."""
NOWHERE = 1 << 62
"""A position where no log has a frame."""
WAITING_MAX = 1_000
"""So many words wait for a peer that takes none; the oldest are lost first. The log's window bounds the frames."""
WAITING_BYTES_MAX = 64 << 20
_log = get_logger("members")


@dataclass(eq=False)
class MemberPeers:
    """Streams to the others, begun when the first word is sent."""

    me: MemberId
    set_id: str
    address_of: Callable[[MemberId], str]
    """Says where a member is; empty when nobody knows."""
    channels: Channels
    background: Background
    clock: Clock
    _lines: "dict[MemberId, _Line]" = field(default_factory=dict)

    def send(self, to: MemberId, message: Message) -> None:
        """Let a message go; it may be lost."""
        line = self._lines.get(to)
        if line is None:
            line = self._lines[to] = _Line(self, to)
            self.background.contained("member line", line.run())
        line.put(message)


class _Line:
    """What is said to one other member."""

    def __init__(self, peers: MemberPeers, to: MemberId) -> None:
        self._peers = peers
        self._to = to
        self._waiting: deque[Message] = deque()
        self._waiting_bytes = 0
        self._some = asyncio.Event()
        self._is_told = False
        self._is_open = False
        """Whether the stream was let in."""
        self._unanswered = 0
        self._answered_s = 0.0
        """When all words that are answered were, or one of them was at last."""

    def put(self, message: Message) -> None:
        """Say it by and by."""
        self._waiting.append(message)
        self._waiting_bytes += _size(message)
        while len(self._waiting) > WAITING_MAX or self._waiting_bytes > WAITING_BYTES_MAX:
            self._take()
        self._some.set()

    def _take(self) -> Message:
        message = self._waiting.popleft()
        self._waiting_bytes -= _size(message)
        return message

    async def run(self) -> None:
        """Speak for ever, on one stream after another."""
        while True:
            await self._some.wait()
            address = self._peers.address_of(self._to)
            self._is_open = False
            try:
                if not address:
                    raise Unavailable("nobody knows where it is")
                with rpc_errors(f"member {address}"):
                    await self._speak(address)
            except OrtooError as error:
                if not self._is_told:
                    _log.emit(log_events.REPLICA_UNREACHABLE_RETRYING, member=self._to.number, reason=str(error))
                self._is_told = True
            if self._is_open:
                continue  # it was another start of it that went; what it was not told is for the next one
            self._waiting.clear()
            self._waiting_bytes = 0
            self._some.clear()
            await self._peers.clock.sleep(RETRY_S)

    async def _speak(self, address: str) -> None:
        peers = self._peers
        call = bulk_calls.speak(peers.channels.to(address))
        try:
            first = pb.MemberMessage(
                set_id=peers.set_id,
                speaker=write(member_report_pb2.MemberId, peers.me),
                to=write(member_report_pb2.MemberId, self._to),
            )
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await call.write(Bulky(first))
                if await call.read() is grpc.aio.EOF:
                    raise Unavailable("it ended the stream")
            if self._is_told:
                _log.emit(log_events.REPLICA_REACHABLE, member=self._to.number)
            self._is_told, self._is_open, self._unanswered = False, True, 0
            async with Background("member line") as background:
                background.spawn("answers", self._hear(call))
                while peers.address_of(self._to) == address:
                    while self._waiting:
                        self._check_answers(self._waiting[0])
                        async with asyncio.timeout(SILENCE_S):
                            await call.write(encode_word(self._waiting[0]))
                        self._take()
                    self._some.clear()
                    await self._some.wait()
        except asyncio.InvalidStateError:  # it had ended before a word was given to it
            raise Unavailable("the stream is over") from None
        except TimeoutError:
            await peers.channels.drop(address)
            raise Unavailable(f"no answer within {CONNECT_TIMEOUT_S} s") from None
        finally:
            call.cancel()

    def _check_answers(self, word: Message) -> None:
        """Note that `word` is to be answered. Errors: TimeoutError when those before it are not, for too long."""
        if not is_answered(word):
            return
        now_s = self._peers.clock.monotonic_s()
        if not self._unanswered:
            self._answered_s = now_s
        elif now_s - self._answered_s > SILENCE_S:
            raise TimeoutError
        self._unanswered += 1

    async def _hear(self, call: Any) -> None:
        """Take the answers, until the stream is over; whoever writes next finds out."""
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            while await call.read() is not grpc.aio.EOF:
                self._unanswered = max(0, self._unanswered - 1)
                self._answered_s = self._peers.clock.monotonic_s()


def _size(message: Message) -> int:
    return message.end - message.begin if isinstance(message, Frames) else 0


async def join(address: str, request: members_pb2.JoinRequest, channels: Channels) -> MemberId:
    """Ask who is at an address to be of a set. Errors: Conflict when it is of another; Unavailable."""
    with rpc_errors(f"member {address}"):
        answer = await MemberServiceStub(channels.to(address)).Join(request, timeout=CONNECT_TIMEOUT_S)
    return read(MemberId, answer.member)


async def copy_frame(address: str, request: members_pb2.CopyFrameRequest, channels: Channels) -> bytes:
    """Ask a member for its frame at a position. Errors: DataLoss when it has none; Conflict; Unavailable."""
    if not address:
        raise Unavailable("nobody knows where it is")
    with rpc_errors(f"member {address}"):
        answer = await MemberServiceStub(channels.to(address)).CopyFrame(request, timeout=CONNECT_TIMEOUT_S)
    return answer.content


async def is_of_set(address: str, set_id: str, member: MemberId, channels: Channels) -> bool:
    """Whether a process at an address answers that is of a set, as `member` or another one; so is who tells nothing."""
    of = write(member_report_pb2.MemberId, member)
    request = members_pb2.CopyFrameRequest(set_id=set_id, of=of, position=NOWHERE)
    try:
        await copy_frame(address, request, channels)
    except Unavailable as error:
        return bool(error.field)  # else nothing came back
    except Conflict as error:
        return error.field != "set_id"
    except OrtooError:
        return True
    return True
