"""Sending messages to the other replicas, over one stream each. Messages may be lost."""

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
from ortoo.common.grpc.messages import read, write
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.enode import log_events
from ortoo.enode.replication.protocol.identity import MemberId
from ortoo.enode.replication.protocol.messages import Frames, Message
from ortoo.enode.rpc.replicas.message_codec import encode_word, is_answered
from ortoo.v1 import member_report_pb2, members_pb2
from ortoo.v1 import members_pb2 as pb
from ortoo.v1.members_pb2_grpc import MemberServiceStub

RETRY_S = 0.1
"""The delay before a broken stream is opened again."""
CONNECT_TIMEOUT_S = 1.0
SILENCE_S = 1.0
"""A stream without an answer for this long is closed with its connection: the peer may have restarted."""
NOWHERE = 1 << 62
"""A position where no log has a frame."""
WAITING_MAX = 1_000
"""The number of messages that wait for a slow peer; the oldest are dropped. The log's window bounds the frames."""
WAITING_BYTES_MAX = 64 << 20
_log = get_logger("members")


@dataclass(eq=False)
class MemberPeers:
    """Streams to the other replicas, opened when the first message is sent."""

    me: MemberId
    set_id: str
    address_of: Callable[[MemberId], str]
    """Returns the address of a replica; empty if it is unknown."""
    channels: Channels
    background: Background
    clock: Clock
    _lines: "dict[MemberId, _Line]" = field(default_factory=dict)

    def send(self, to: MemberId, message: Message) -> None:
        """Send a message without waiting; it may be lost."""
        line = self._lines.get(to)
        if line is None:
            line = self._lines[to] = _Line(self, to)
            self.background.contained("member line", line.run())
        line.put(message)


class _Line:
    """The messages to one other replica."""

    def __init__(self, peers: MemberPeers, to: MemberId) -> None:
        self._peers = peers
        self._to = to
        self._waiting: deque[Message] = deque()
        self._waiting_bytes = 0
        self._some = asyncio.Event()
        self._is_told = False
        self._is_open = False
        """Whether the peer accepted the stream."""
        self._unanswered = 0
        self._answered_s = 0.0
        """When the last answer came, or when none was outstanding."""

    def put(self, message: Message) -> None:
        """Queue a message; drop the oldest beyond the limits."""
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
        """Send for ever, opening a new stream after each failure."""
        while True:
            await self._some.wait()
            address = self._peers.address_of(self._to)
            self._is_open = False
            try:
                if not address:
                    raise Unavailable("its address is unknown")
                with rpc_errors(f"replica {address}"):
                    await self._speak(address)
            except OrtooError as error:
                if not self._is_told:
                    _log.emit(log_events.REPLICA_UNREACHABLE_RETRYING, member=self._to.number, reason=str(error))
                self._is_told = True
            if self._is_open:
                continue  # the peer restarted; its next start gets the waiting messages
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
        except asyncio.InvalidStateError:  # it had ended before a message was written
            raise Unavailable("the stream has ended") from None
        except TimeoutError:
            await peers.channels.drop(address)
            raise Unavailable(f"no answer within {CONNECT_TIMEOUT_S} s") from None
        finally:
            call.cancel()

    def _check_answers(self, word: Message) -> None:
        """Count `word` as unanswered. Errors: TimeoutError if earlier messages have waited too long for an answer."""
        if not is_answered(word):
            return
        now_s = self._peers.clock.monotonic_s()
        if not self._unanswered:
            self._answered_s = now_s
        elif now_s - self._answered_s > SILENCE_S:
            raise TimeoutError
        self._unanswered += 1

    async def _hear(self, call: Any) -> None:
        """Read answers until the stream ends; the next write then fails."""
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            while await call.read() is not grpc.aio.EOF:
                self._unanswered = max(0, self._unanswered - 1)
                self._answered_s = self._peers.clock.monotonic_s()


def _size(message: Message) -> int:
    return message.end - message.begin if isinstance(message, Frames) else 0


async def join(address: str, request: members_pb2.JoinRequest, channels: Channels) -> MemberId:
    """Ask the replica at an address to join a set. Errors: Conflict (it is of another set), Unavailable."""
    with rpc_errors(f"replica {address}"):
        answer = await MemberServiceStub(channels.to(address)).Join(request, timeout=CONNECT_TIMEOUT_S)
    return read(MemberId, answer.member)


async def copy_frame(address: str, request: members_pb2.CopyFrameRequest, channels: Channels) -> bytes:
    """Read a replica's frame at a position. Errors: DataLoss (it has none), Conflict, Unavailable."""
    if not address:
        raise Unavailable("its address is unknown")
    with rpc_errors(f"replica {address}"):
        answer = await MemberServiceStub(channels.to(address)).CopyFrame(request, timeout=CONNECT_TIMEOUT_S)
    return answer.content


async def is_of_set(address: str, set_id: str, member: MemberId, channels: Channels) -> bool:
    """Whether a process of a set answers at an address, as `member` or another; also if its answer names no set."""
    of = write(member_report_pb2.MemberId, member)
    request = members_pb2.CopyFrameRequest(set_id=set_id, of=of, position=NOWHERE)
    try:
        await copy_frame(address, request, channels)
    except Unavailable as error:
        return bool(error.field)  # without a field the error is from the transport
    except Conflict as error:
        return error.field != "set_id"
    except OrtooError:
        return True
    return True
