"""The seal on a handle: it proves that the cluster made the handle and that its content is unchanged.

A handle is base64url, without padding, of

    version 1    version u8 | content | CRC-32C u32 of all before
    version 2    version u8 | content | key id u32 | HMAC-SHA256, its first 16 bytes

little-endian. The HMAC uses a key of the cluster and covers the name of the purpose, a zero byte, and all bytes before
the HMAC. A handle of one kind is therefore invalid as another kind. Half of the hash's output, 16 bytes, is the minimum
that RFC 2104 (section 5) recommends. One of 2^128 guesses is right, and each guess costs a call.

A cluster without keys, because its name servers are older, makes handles of version 1, which prove nothing. A cluster
with keys refuses them, except for a while after an upgrade.
"""

import binascii
import hashlib
import hmac
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ortoo.common.errors import Invalid, Unsupported
from ortoo.common.records.sealed_batch import crc32c

PLAIN, SEALED = 1, 2
VERSION_MAX = 5
"""Unknown versions up to this one count as newer versions; any other first byte means that a text is no handle."""
MAC_BYTES = 16
SEAL_BYTES = 4 + MAC_BYTES
KEY_SETTLE_MS = 60_000
"""The age from which a key is used for new handles, so that all snodes have received it."""
_KEY_ID = struct.Struct("<I")
_URL_ALPHABET, _STANDARD_ALPHABET = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_+/=", b"+/***")
"""To and from the alphabet of base64url. The characters of base64 itself become invalid ones."""
_PLAIN, _SEALED = bytes((PLAIN,)), bytes((SEALED,))


@dataclass(frozen=True, slots=True)
class HandleKey:
    """A key with which the cluster seals handles."""

    key_id: int
    """1 to 2^32 - 1, random."""
    secret: bytes = field(repr=False)
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class HandleKeys:
    """All keys of the cluster's handles."""

    keys: tuple[HandleKey, ...] = ()
    """The keys, the newest last."""
    unsigned_until_ms: int = 0
    """Until this time handles without a seal are accepted, because they may have been made before an upgrade."""


class HandleSeals:
    """Makes and checks seals. Without keys it makes and accepts handles without a seal."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        """`now_ms` is the time since 1970-01-01 UTC."""
        self._now_ms = now_ms
        self._unsigned_until_ms = 0
        self._keys: tuple[HandleKey, ...] = ()
        self._macs: dict[tuple[int, bytes], hmac.HMAC] = {}
        """By key id and purpose: an HMAC prepared with both. Copying it costs half as much as a new one."""
        self._secrets: dict[int, bytes] = {}

    def use_keys(self, keys: HandleKeys) -> None:
        """Use these keys from now on."""
        self._keys, self._unsigned_until_ms = keys.keys, keys.unsigned_until_ms
        self._secrets = {key.key_id: key.secret for key in keys.keys}
        self._macs.clear()

    def seal(self, purpose: bytes, data: bytes) -> bytes:
        """The seal of `data`: key id and HMAC; empty without keys."""
        if not self._keys:
            return b""
        number = self._sealing_key()
        key_id = _KEY_ID.pack(number)
        return key_id + self._mac(number, purpose, data + key_id)

    def is_sealed(self, purpose: bytes, data: bytes, seal: bytes) -> bool:
        """Whether a seal over `data` was made with one of these keys; compares HMACs in constant time."""
        key_id, mac = seal[: _KEY_ID.size], seal[_KEY_ID.size :]
        number = int.from_bytes(key_id, "little")
        return number in self._secrets and hmac.compare_digest(mac, self._mac(number, purpose, data + key_id))

    def encode(self, purpose: bytes, content: bytes) -> str:
        """A handle as text for clients: letters, digits, - and _."""
        [text] = self.encode_all(purpose, (content,))
        return text

    def encode_all(self, purpose: bytes, contents: Iterable[bytes]) -> list[str]:
        """The text of `encode` for each content."""
        if not self._keys:
            plain = [_PLAIN + content for content in contents]
            return [_text(data + crc32c(data).to_bytes(4, "little")) for data in plain]
        number = self._sealing_key()
        key_id = _KEY_ID.pack(number)
        sealed = [_SEALED + content + key_id for content in contents]
        return [_text(data + self._mac(number, purpose, data)) for data in sealed]

    def accepts_plain(self) -> bool:
        """Whether handles without a seal are accepted."""
        return not self._keys or self._now_ms() < self._unsigned_until_ms

    def _sealing_key(self) -> int:
        """The id of the key for new seals: the newest one that all snodes have received."""
        used_ms = self._now_ms() - KEY_SETTLE_MS
        key = self._keys[-1]
        if key.created_at_ms > used_ms:
            key = next((key for key in reversed(self._keys) if key.created_at_ms <= used_ms), self._keys[0])
        return key.key_id

    def _mac(self, key_id: int, purpose: bytes, data: bytes) -> bytes:
        begun = self._macs.get((key_id, purpose))
        if begun is None:
            begun = self._macs[key_id, purpose] = hmac.new(self._secrets[key_id], purpose + b"\0", hashlib.sha256)
        mac = begun.copy()
        mac.update(data)
        return mac.digest()[:MAC_BYTES]


def _text(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).translate(_URL_ALPHABET).rstrip(b"=").decode()


def open_handle(seals: HandleSeals | None, purpose: bytes, text: str, wrong: Invalid) -> bytes:
    """The content of a handle.

    If `seals` is None, the handle's seal is not checked. A process does so to check the caller's permissions before
    another process checks the seal. Errors: Unsupported for a newer version, `wrong` for any other invalid handle.
    """
    data = decode_text(text, wrong)
    if data[0] == SEALED:
        content, seal = data[:-SEAL_BYTES], data[-SEAL_BYTES:]
        if len(data) <= SEAL_BYTES or not (seals is None or seals.is_sealed(purpose, content, seal)):
            raise wrong
    elif data[0] == PLAIN:
        content, crc = data[:-4], data[-4:]
        if crc32c(content).to_bytes(4, "little") != crc or not (seals is None or seals.accepts_plain()):
            raise wrong
    elif data[0] > VERSION_MAX:
        raise wrong
    else:
        message = f"a handle of version {data[0]}, which this process does not support: upgrade it"
        raise Unsupported(message, field=wrong.field)
    return content[1:]


def decode_text(text: str, wrong: Invalid) -> bytes:
    """The bytes of a handle's text. Errors: `wrong` if the text is empty or not the canonical base64url encoding."""
    try:
        padded = text.encode("ascii").translate(_STANDARD_ALPHABET) + b"=" * (-len(text) % 4)
        data = binascii.a2b_base64(padded, strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        raise wrong from None
    if not data or binascii.b2a_base64(data, newline=False) != padded:
        raise wrong
    return data
