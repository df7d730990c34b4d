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
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.messages import read, write
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.enode import log_events
from ortoo.enode.replication.protocol.identity import ReplicaId
from ortoo.enode.replication.protocol.messages import Frames, Message
from ortoo.enode.rpc.replicas.message_codec import encode_message, needs_response
from ortoo.v1 import replica_report_pb2, replication_pb2
from ortoo.v1 import replication_pb2 as pb
from ortoo.v1.replication_pb2_grpc import ReplicationServiceStub

RECONNECT_DELAY_S = 0.1
"""The delay before a broken stream is opened again."""
CONNECT_TIMEOUT_S = 1.0
RESPONSE_TIMEOUT_S = 1.0
"""A stream without an answer for this long is closed with its connection: the peer may have restarted."""
NO_POSITION = 1 << 62
"""A position where no log has a frame."""
QUEUED_MAX = 1_000
"""The number of messages that wait for a slow peer; the oldest are dropped. The log's window bounds the frames."""
QUEUED_BYTES_MAX = 64 << 20
_log = get_logger("replication")


@dataclass(eq=False)
class ReplicaPeers:
    """Streams to the other replicas, opened when the first message is sent.

    Concurrency: all methods belong to one event loop. `send` never waits.
    Durability: none. A message may be lost, or arrive long after it was sent. Messages over one connection arrive in
    the order of the calls.
    Errors: none. A replica that cannot be reached is logged once, and loses the messages that wait for it.
    """

    identity: ReplicaId
    set_id: str
    address_of: Callable[[ReplicaId], str]
    """Returns the address of a replica; empty if it is unknown."""
    channels: Channels
    background: Background
    clock: Clock
    _streams: "dict[ReplicaId, _PeerStream]" = field(default_factory=dict)

    def send(self, to: ReplicaId, message: Message) -> None:
        """Send a message without waiting; it may be lost."""
        line = self._streams.get(to)
        if line is None:
            line = self._streams[to] = _PeerStream(self, to)
            self.background.run_contained("replica line", line.run())
        line.enqueue(message)


class _PeerStream:
    """The messages to one other replica."""

    def __init__(self, peers: ReplicaPeers, to: ReplicaId) -> None:
        self._peers = peers
        self._to = to
        self._queued: deque[Message] = deque()
        self._queued_bytes = 0
        self._has_queued = asyncio.Event()
        self._is_failure_logged = False
        self._is_open = False
        """Whether the peer accepted the stream."""
        self._unanswered = 0
        self._answered_s = 0.0
        """When the last answer came, or when none was outstanding."""

    def enqueue(self, message: Message) -> None:
        """Queue a message; drop the oldest beyond the limits."""
        self._queued.append(message)
        self._queued_bytes += _size(message)
        while len(self._queued) > QUEUED_MAX or self._queued_bytes > QUEUED_BYTES_MAX:
            self._dequeue()
        self._has_queued.set()

    def _dequeue(self) -> Message:
        message = self._queued.popleft()
        self._queued_bytes -= _size(message)
        return message

    async def run(self) -> None:
        """Send messages for ever; open a new stream after each failure."""
        while True:
            await self._has_queued.wait()
            address = self._peers.address_of(self._to)
            self._is_open = False
            try:
                if not address:
                    raise Unavailable("the replica's address is unknown")
                with rpc_errors(f"replica {address}"):
                    await self._run_stream(address)
            except OrtooError as error:
                if not self._is_failure_logged:
                    _log.emit(log_events.REPLICA_UNREACHABLE_RETRYING, replica=self._to.number, reason=str(error))
                self._is_failure_logged = True
            if self._is_open:
                continue  # the peer restarted; its next start gets the waiting messages
            self._queued.clear()
            self._queued_bytes = 0
            self._has_queued.clear()
            await self._peers.clock.sleep(RECONNECT_DELAY_S)

    async def _run_stream(self, address: str) -> None:
        peers = self._peers
        call = bulk_calls.speak(peers.channels.channel_to(address))
        try:
            first = pb.ReplicaMessage(
                set_id=peers.set_id,
                sender=write(replica_report_pb2.ReplicaId, peers.identity),
                recipient=write(replica_report_pb2.ReplicaId, self._to),
            )
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await call.write(BulkMessage(first))
                if await call.read() is grpc.aio.EOF:
                    raise Unavailable("the replica ended the stream")
            if self._is_failure_logged:
                _log.emit(log_events.REPLICA_REACHABLE, replica=self._to.number)
            self._is_failure_logged, self._is_open, self._unanswered = False, True, 0
            async with Background("replica line") as background:
                background.spawn("answers", self._read_responses(call))
                while peers.address_of(self._to) == address:
                    while self._queued:
                        self._check_responses(self._queued[0])
                        async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                            await call.write(encode_message(self._queued[0]))
                        self._dequeue()
                    self._has_queued.clear()
                    await self._has_queued.wait()
        except asyncio.InvalidStateError:  # it had ended before a message was written
            raise Unavailable("the stream has ended") from None
        except TimeoutError:
            await peers.channels.drop(address)
            raise Unavailable(f"no answer within {CONNECT_TIMEOUT_S} s") from None
        finally:
            call.cancel()

    def _check_responses(self, message: Message) -> None:
        """Count `message` as unanswered.

        Errors: TimeoutError if earlier messages have waited too long for an answer.
        """
        if not needs_response(message):
            return
        now_s = self._peers.clock.monotonic_s()
        if not self._unanswered:
            self._answered_s = now_s
        elif now_s - self._answered_s > RESPONSE_TIMEOUT_S:
            raise TimeoutError
        self._unanswered += 1

    async def _read_responses(self, call: Any) -> None:
        """Read answers until the stream ends; the next write then fails."""
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            while await call.read() is not grpc.aio.EOF:
                self._unanswered = max(0, self._unanswered - 1)
                self._answered_s = self._peers.clock.monotonic_s()


def _size(message: Message) -> int:
    return message.end - message.begin if isinstance(message, Frames) else 0


async def ask_to_join(address: str, request: replication_pb2.JoinRequest, channels: Channels) -> ReplicaId:
    """Ask the replica at an address to join a set. Errors: Conflict (the replica is in another set), Unavailable."""
    with rpc_errors(f"replica {address}"):
        response = await ReplicationServiceStub(channels.channel_to(address)).Join(request, timeout=CONNECT_TIMEOUT_S)
    return read(ReplicaId, response.replica)


async def fetch_frame_copy(address: str, request: replication_pb2.CopyFrameRequest, channels: Channels) -> bytes:
    """Read a replica's frame at a position. Errors: DataLoss (the replica lacks the frame), Conflict, Unavailable."""
    if not address:
        raise Unavailable("its address is unknown")
    with rpc_errors(f"replica {address}"):
        response = await ReplicationServiceStub(channels.channel_to(address)).CopyFrame(
            request, timeout=CONNECT_TIMEOUT_S
        )
    return response.content


async def is_in_set(address: str, set_id: str, replica: ReplicaId, channels: Channels) -> bool:
    """Whether a process of the set answers at an address. True also if the answer contains no set id."""
    of = write(replica_report_pb2.ReplicaId, replica)
    request = replication_pb2.CopyFrameRequest(set_id=set_id, source=of, position=NO_POSITION)
    try:
        await fetch_frame_copy(address, request, channels)
    except Unavailable as error:
        return bool(error.field)  # without a field the error is from the transport
    except Conflict as error:
        return error.field != "set_id"
    except OrtooError:
        return True
    return True
