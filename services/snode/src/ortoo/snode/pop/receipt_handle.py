"""The receipt handle: names a lease, so that any snode finds the enode that stores it.

A handle is sealed (see `handle_seal`). Its content is little-endian:

* length of the enode's name u8, of the group's name u8
* queue u32, topic id u64, lease number u64, first offset i64, message count u32
* the enode's name, the group's name
* the number of renewals u32, only in handles that were returned by a renewal
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ortoo.common.errors import Invalid
from ortoo.common.groups.handle_seal import HandleSeals, open_handle

TEXT_LENGTH_MAX = 512
_PURPOSE = b"ortoo receipt"
_HEAD = struct.Struct("<BBIQQqI")
_RENEWALS = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class ReceiptHandle:
    """The handle of a lease, which has messages of one queue."""

    enode: str
    group: str
    topic_id: int
    queue_id: int
    number: int
    """The number of the lease."""
    first_offset: int
    count: int
    """The number of offsets from the first to the last message. The lease may lack some of these messages."""
    renewals: int = field(default=0, compare=False)
    """Makes the text of each renewed handle different, as clients of RocketMQ expect. The lease stays the same."""

    def renewed(self) -> "ReceiptHandle":
        """The handle of the same lease after another renewal."""
        return replace(self, renewals=(self.renewals + 1) % (1 << 32))

    def encoded(self, seals: HandleSeals) -> str:
        """The sealed text of the handle, which clients receive."""
        renewals = _RENEWALS.pack(self.renewals) if self.renewals else b""
        [text] = self._encoded(seals, (self.first_offset,), self.count, renewals)
        return text

    def encoded_messages(self, seals: HandleSeals, offsets: Iterable[int]) -> list[str]:
        """The sealed text of a handle of only the message at each offset."""
        return self._encoded(seals, offsets, 1)

    def _encoded(self, seals: HandleSeals, offsets: Iterable[int], count: int, renewals: bytes = b"") -> list[str]:
        enode, group = self.enode.encode(), self.group.encode()
        head = (len(enode), len(group), self.queue_id, self.topic_id, self.number)
        tail = enode + group + renewals
        return seals.encode_all(_PURPOSE, [_HEAD.pack(*head, offset, count) + tail for offset in offsets])


def read_receipt(text: str, seals: HandleSeals | None, field: str = "receipt_handle") -> ReceiptHandle:
    """Decode the text of a handle, and verify its seal unless `seals` is None.

    Errors: Invalid for a malformed, changed or forged handle, Unsupported for a handle of a newer version.
    """
    wrong = Invalid("this is not a receipt handle of this cluster; give the handle that Pop returned", field=field)
    if not 1 <= len(text) <= TEXT_LENGTH_MAX:
        raise wrong
    content = open_handle(seals, _PURPOSE, text, wrong)
    if len(content) < _HEAD.size:
        raise wrong
    enode_bytes, group_bytes, queue_id, topic_id, number, first, count = _HEAD.unpack_from(content)
    end = _HEAD.size + enode_bytes + group_bytes
    if len(content) not in (end, end + _RENEWALS.size):
        raise wrong
    try:
        enode = content[_HEAD.size : _HEAD.size + enode_bytes].decode()
        group = content[_HEAD.size + enode_bytes : end].decode()
    except UnicodeDecodeError:
        raise wrong from None
    renewals = int.from_bytes(content[end:], "little")
    return ReceiptHandle(enode, group, topic_id, queue_id, number, first, count, renewals)
