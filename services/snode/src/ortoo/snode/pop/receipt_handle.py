"""The receipt handle: names a lease so that any snode finds the enode that keeps it.

Text of base64url: version u8, length of the enode's name u8, of the group's u8, queue u32, topic id u64, lease number
u64, first offset i64, message count u32, enode, group, CRC-32C u32 of all before. Little-endian.
"""

import base64
import binascii
import struct
from dataclasses import dataclass

from ortoo.common.errors import Invalid, Unsupported
from ortoo.common.records.sealed_batch import crc32c

VERSION = 1
TEXT_LENGTH_MAX = 512
_HEAD = struct.Struct("<BBBIQQqI")
_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class ReceiptHandle:
    """A lease on some messages of one queue."""

    enode: str
    group: str
    topic_id: int
    queue_id: int
    number: int
    """Of the lease."""
    first_offset: int
    count: int
    """From the first to the last message; those in between need not be the lease's."""

    def encoded(self) -> str:
        """The text."""
        enode, group = self.enode.encode(), self.group.encode()
        head = _HEAD.pack(
            VERSION, len(enode), len(group), self.queue_id, self.topic_id, self.number, self.first_offset, self.count
        )
        data = head + enode + group
        return base64.urlsafe_b64encode(data + _CRC.pack(crc32c(data))).rstrip(b"=").decode()


def decode_handle(text: str, field: str = "receipt_handle") -> ReceiptHandle:
    """Read a handle. Errors: Invalid when it is none, or was changed; Unsupported when it is newer."""
    if not 1 <= len(text) <= TEXT_LENGTH_MAX:
        raise Invalid(f"{len(text)} characters; give a handle as Pop answered it", field=field)
    try:
        data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        body, crc = data[: -_CRC.size], _CRC.unpack(data[-_CRC.size :])[0]
    except (binascii.Error, UnicodeEncodeError, struct.error):
        raise Invalid("this is no receipt handle; give it as Pop answered it", field=field) from None
    if crc32c(body) != crc or len(body) < _HEAD.size:
        raise Invalid("the receipt handle was changed on its way; give it as Pop answered it", field=field)
    version, enode_bytes, group_bytes, queue_id, topic_id, number, first, count = _HEAD.unpack_from(body)
    if version != VERSION:
        raise Unsupported(f"a receipt handle of version {version}; this snode knows {VERSION}: upgrade it", field=field)
    if len(body) != _HEAD.size + enode_bytes + group_bytes:
        raise Invalid("the receipt handle's lengths do not fit", field=field)
    try:
        enode = body[_HEAD.size : _HEAD.size + enode_bytes].decode()
        group = body[_HEAD.size + enode_bytes :].decode()
    except UnicodeDecodeError:
        raise Invalid("the names in the receipt handle are no UTF-8; give it as Pop answered it", field=field) from None
    return ReceiptHandle(enode, group, topic_id, queue_id, number, first, count)
