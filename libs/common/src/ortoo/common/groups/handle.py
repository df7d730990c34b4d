"""Handles: texts that name one delayed message or one transaction, so that any snode finds it.

A handle is opaque to clients, has a version, and says for itself whether somebody changed it: a mistyped or cut one is
refused, not taken for another message.
"""

import base64
import binascii
import enum
import struct
from dataclasses import dataclass

from ortoo.common.errors import Invalid, Unsupported
from ortoo.common.records.sealed_batch import crc32c

VERSION = 1
_HEAD = struct.Struct("<BBQIqq")
HANDLE_LENGTH_MAX = 256


class HandleKind(enum.IntEnum):
    """What a handle names."""

    DELAYED = 1
    TRANSACTION = 2


@dataclass(frozen=True, slots=True)
class Handle:
    """Where something waits."""

    kind: HandleKind
    enode: str
    topic_id: int
    """The topic it will be delivered in."""
    queue_id: int
    number: int
    """Its number on the enode."""
    time_ms: int
    """Of a delayed message: when it is due. Of a transaction: 0."""

    def text(self) -> str:
        """As clients keep it: letters, digits, - and _."""
        head = _HEAD.pack(VERSION, self.kind, self.topic_id, self.queue_id, self.number, self.time_ms)
        data = head + self.enode.encode()
        return base64.urlsafe_b64encode(data + crc32c(data).to_bytes(4, "little")).decode().rstrip("=")


def read_handle(text: str, kind: HandleKind, field: str) -> Handle:
    """Read a handle. Errors: Invalid, naming `field`, when it is damaged or names something else; Unsupported."""
    wrong = Invalid(f"this is no handle of a {_NAMES[kind]}; give the text exactly as it was received", field=field)
    if not 0 < len(text) <= HANDLE_LENGTH_MAX:
        raise wrong
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise wrong from None
    body, crc = data[:-4], data[-4:]
    if len(body) <= _HEAD.size or crc32c(body).to_bytes(4, "little") != crc:
        raise wrong
    version, known, topic_id, queue_id, number, time_ms = _HEAD.unpack_from(body)
    if version != VERSION:
        raise Unsupported(f"a handle of version {version}; this process knows {VERSION}: upgrade it", field=field)
    if known != kind:
        raise wrong
    try:
        enode = body[_HEAD.size :].decode()
    except UnicodeDecodeError:
        raise wrong from None
    return Handle(kind, enode, topic_id, queue_id, number, time_ms)


_NAMES = {HandleKind.DELAYED: "delayed message", HandleKind.TRANSACTION: "transaction"}
