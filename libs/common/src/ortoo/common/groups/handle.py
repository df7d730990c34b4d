"""Handles: texts that name one delayed message or one transaction, so that any snode finds it.

A handle is opaque to clients, has a version, and is sealed (see `handle_seal`). Its content, little-endian:

    kind u8 | topic id u64 | queue u32 | number i64 | time i64 | enode's name

A client that sends batches makes the handles of their delayed messages itself. For this the answer contains one seal
for each batch. Such a handle has version 3. Its content has `first number i64 | count u32` before the enode's name, and
the seal after it. The seal covers topic, queue, first number, count and enode; the enode checks the time.
"""

import base64
import enum
import struct
from dataclasses import dataclass

from ortoo.common.errors import Invalid
from ortoo.common.groups.handle_seal import SEAL_BYTES, HandleSeals, decode_text, open_handle

VERSION_OF_BATCH = 3
"""The version of a handle that is sealed with its batch."""
HANDLE_LENGTH_MAX = 256
_HEAD = struct.Struct("<BQIqq")
_RANGE = struct.Struct("<qI")
_BATCH = struct.Struct("<QIqI")
_BATCH_PURPOSE = b"ortoo batch of delayed messages"


class HandleKind(enum.IntEnum):
    """The kind of object that a handle names."""

    DELAYED = 1
    TRANSACTION = 2


@dataclass(frozen=True, slots=True)
class Handle:
    """The place of a delayed message or of a transaction."""

    kind: HandleKind
    enode: str
    topic_id: int
    """The topic in which the messages will be delivered."""
    queue_id: int
    number: int
    """The number of the delayed message or the transaction on the enode."""
    time_ms: int
    """The time at which a delayed message is due; 0 for a transaction."""

    def encoded(self, seals: HandleSeals) -> str:
        """The handle as a text for clients: letters, digits, - and _."""
        return seals.encode(_PURPOSES[self.kind], self._head() + self.enode.encode())

    def encoded_of_batch(self, batch: "DelayedBatch", seal: bytes) -> str:
        """The handle of a message of `batch` as a text, with the batch's `seal`, which is empty without keys."""
        if not seal:
            return HandleSeals().encode(_PURPOSES[self.kind], self._head() + self.enode.encode())
        place = _RANGE.pack(batch.first, batch.count)
        data = bytes((VERSION_OF_BATCH,)) + self._head() + place + self.enode.encode() + seal
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    def _head(self) -> bytes:
        return _HEAD.pack(self.kind, self.topic_id, self.queue_id, self.number, self.time_ms)


@dataclass(frozen=True, slots=True)
class DelayedBatch:
    """The delayed messages of one batch; the handles of all these messages contain the same seal."""

    enode: str
    topic_id: int
    queue_id: int
    first: int
    """The number of the first delayed message on the enode."""
    count: int

    def seal(self, seals: HandleSeals) -> bytes:
        """The seal that is sent to the batch's producer; empty if `seals` has no keys."""
        return seals.seal(_BATCH_PURPOSE, self._sealed_bytes())

    def is_sealed(self, seals: HandleSeals, seal: bytes) -> bool:
        """Whether `seal` is the seal of this batch."""
        return seals.is_sealed(_BATCH_PURPOSE, self._sealed_bytes(), seal)

    def _sealed_bytes(self) -> bytes:
        return _BATCH.pack(self.topic_id, self.queue_id, self.first, self.count) + self.enode.encode()


def read_handle(text: str, kind: HandleKind, field: str, seals: HandleSeals | None) -> Handle:
    """Read a handle. If `seals` is None, the handle's seal is not checked (see `open_handle`).

    Errors: Unsupported for a newer version. Invalid, naming `field`, for a damaged or forged handle or another kind.
    """
    wrong = Invalid(f"this is no handle of a {_NAMES[kind]}; give the text exactly as it was received", field=field)
    if not 0 < len(text) <= HANDLE_LENGTH_MAX:
        raise wrong
    if kind is HandleKind.DELAYED and (data := decode_text(text, wrong))[0] == VERSION_OF_BATCH:
        return _read_of_batch(data[1:], wrong, seals)
    content = open_handle(seals, _PURPOSES[kind], text, wrong)
    return _read(content, content[_HEAD.size :], kind, wrong)


def _read_of_batch(data: bytes, wrong: Invalid, seals: HandleSeals | None) -> Handle:
    content, seal = data[:-SEAL_BYTES], data[-SEAL_BYTES:]
    if len(content) <= _HEAD.size + _RANGE.size:
        raise wrong
    handle = _read(content, content[_HEAD.size + _RANGE.size :], HandleKind.DELAYED, wrong)
    batch = DelayedBatch(handle.enode, handle.topic_id, handle.queue_id, *_RANGE.unpack_from(content, _HEAD.size))
    is_within = batch.first <= handle.number < batch.first + batch.count
    if not (is_within and (seals is None or batch.is_sealed(seals, seal))):
        raise wrong
    return handle


def _read(content: bytes, enode: bytes, kind: HandleKind, wrong: Invalid) -> Handle:
    if not enode:
        raise wrong
    known, topic_id, queue_id, number, time_ms = _HEAD.unpack_from(content)
    if known != kind:
        raise wrong
    try:
        return Handle(kind, enode.decode(), topic_id, queue_id, number, time_ms)
    except UnicodeDecodeError:
        raise wrong from None


_NAMES = {HandleKind.DELAYED: "delayed message", HandleKind.TRANSACTION: "transaction"}
_PURPOSES = {HandleKind.DELAYED: b"ortoo delayed message", HandleKind.TRANSACTION: b"ortoo transaction"}
