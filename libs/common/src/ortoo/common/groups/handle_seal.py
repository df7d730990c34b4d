"""The seal on a handle: nobody but the cluster makes one, and nobody changes one.

A handle is base64url, without padding, of

    version 1    version u8 | content | CRC-32C u32 of all before
    version 2    version u8 | content | key id u32 | HMAC-SHA256, its first 16 bytes

little-endian. The second is made with a key of the cluster, over the name of what the handle is for, a zero byte, and
all before the HMAC; so a handle of one kind is none of another. 16 bytes are half of the hash's output, which RFC 2104
(section 5) asks for at least: of 2^128 guesses one is right, and each is a call.

The first is from clusters without keys: those whose name servers are older. It proves nothing, and is refused where the
cluster has keys, but for a while after an upgrade.
"""

import base64
import binascii
import hashlib
import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from ortoo.common.errors import Invalid, Unsupported
from ortoo.common.records.sealed_batch import crc32c

PLAIN, SEALED = 1, 2
VERSION_MAX = 5
"""Up to here an unknown version is taken for a newer one; a text that is no handle begins with anything."""
MAC_BYTES = 16
SEAL_BYTES = 4 + MAC_BYTES
NEW_MS = 60_000
"""A key is used for new handles when it is so old, so that all snodes have heard of it."""
_KEY_ID = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class HandleKey:
    """A key of the cluster."""

    key_id: int
    """1 to 2^32 - 1, by chance."""
    secret: bytes = field(repr=False)
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class HandleKeys:
    """All keys that handles may be sealed with."""

    keys: tuple[HandleKey, ...] = ()
    """The newest last."""
    unsigned_until_ms: int = 0
    """Until then handles without a seal are good: they may be from before an upgrade."""


class HandleSeals:
    """Seals handles, and looks at seals. Without keys it makes and takes handles without."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        """`now_ms` is the time since 1970-01-01 UTC."""
        self._now_ms = now_ms
        self._unsigned_until_ms = 0
        self._keys: tuple[HandleKey, ...] = ()
        self._macs: dict[tuple[int, bytes], hmac.HMAC] = {}
        """By key id and purpose: begun with both, to be copied, which costs half of beginning anew."""
        self._secrets: dict[int, bytes] = {}

    def use(self, keys: HandleKeys) -> None:
        """Use these keys from now on."""
        self._keys, self._unsigned_until_ms = keys.keys, keys.unsigned_until_ms
        self._secrets = {key.key_id: key.secret for key in keys.keys}
        self._macs.clear()

    def seal(self, purpose: bytes, data: bytes) -> bytes:
        """Key id and HMAC of `data`; empty without keys."""
        if not self._keys:
            return b""
        used_ms = self._now_ms() - NEW_MS
        key = self._keys[-1]
        if key.created_at_ms > used_ms:
            key = next((key for key in reversed(self._keys) if key.created_at_ms <= used_ms), self._keys[0])
        key_id = _KEY_ID.pack(key.key_id)
        return key_id + self._mac(key.key_id, purpose, data + key_id)

    def is_sealed(self, purpose: bytes, data: bytes, seal: bytes) -> bool:
        """Whether a seal is one of these keys' over `data`; takes as long for a wrong HMAC as for a right one."""
        key_id, mac = seal[: _KEY_ID.size], seal[_KEY_ID.size :]
        number = int.from_bytes(key_id, "little")
        return number in self._secrets and hmac.compare_digest(mac, self._mac(number, purpose, data + key_id))

    def text(self, purpose: bytes, content: bytes) -> str:
        """A handle, as clients keep it: letters, digits, - and _."""
        data = bytes((SEALED if self._keys else PLAIN,)) + content
        seal = self.seal(purpose, data) or crc32c(data).to_bytes(4, "little")
        return base64.urlsafe_b64encode(data + seal).rstrip(b"=").decode()

    def takes_plain(self) -> bool:
        """Whether handles without a seal are good."""
        return not self._keys or self._now_ms() < self._unsigned_until_ms

    def _mac(self, key_id: int, purpose: bytes, data: bytes) -> bytes:
        begun = self._macs.get((key_id, purpose))
        if begun is None:
            begun = self._macs[key_id, purpose] = hmac.new(self._secrets[key_id], purpose + b"\0", hashlib.sha256)
        mac = begun.copy()
        mac.update(data)
        return mac.digest()[:MAC_BYTES]


def opened(seals: HandleSeals | None, purpose: bytes, text: str, wrong: Invalid) -> bytes:
    """The content of a handle.

    Without `seals` its seal is not looked at: for who asks for the right to what it claims to be, before somebody else
    looks. Errors: `wrong` when it is none, was changed, or is sealed by nobody who may; Unsupported when it is newer.
    """
    data = decoded(text, wrong)
    if data[0] == SEALED:
        content, seal = data[:-SEAL_BYTES], data[-SEAL_BYTES:]
        if len(data) <= SEAL_BYTES or not (seals is None or seals.is_sealed(purpose, content, seal)):
            raise wrong
    elif data[0] == PLAIN:
        content, crc = data[:-4], data[-4:]
        if crc32c(content).to_bytes(4, "little") != crc or not (seals is None or seals.takes_plain()):
            raise wrong
    elif data[0] > VERSION_MAX:
        raise wrong
    else:
        words = f"a handle of version {data[0]}, which this process does not know: upgrade it"
        raise Unsupported(words, field=wrong.field)
    return content[1:]


def decoded(text: str, wrong: Invalid) -> bytes:
    """The bytes of a handle, at least one. Errors: `wrong`, also for another spelling of the same bytes."""
    try:
        given = text.encode("ascii")
        data = base64.b64decode(given + b"=" * (-len(given) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise wrong from None
    if not data or base64.urlsafe_b64encode(data).rstrip(b"=") != given:
        raise wrong
    return data
