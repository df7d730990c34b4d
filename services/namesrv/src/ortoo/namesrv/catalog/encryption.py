"""The stored form of secrets in the database: encrypted with a key from a file, or plain text without a key.

A stored secret begins with its form, `plain:` or `fernet:`. Signatures need the secrets themselves, so they cannot be
hashed. The encrypted text contains the owner, so that a writer of the database cannot assign a secret to another user.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ortoo.common.errors import Invalid

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

PLAIN, FERNET = "plain:", "fernet:"
FIELD = "secrets_key_file"


class Encryption:
    """Encrypts and decrypts secrets with Fernet (AES-128-CBC and HMAC-SHA256). Previous keys can still decrypt."""

    def __init__(self, key: bytes = b"", previous: Sequence[bytes] = ()) -> None:
        """Encrypt with `key`, or store plain text if `key` is empty; decrypt with `key` and the `previous` keys.

        Each key is 32 bytes in base64. Errors: Invalid.
        """
        self.encrypts = bool(key)
        self._keys: list[Fernet] = [_fernet(one) for one in ([key] if key else []) + list(previous)]

    def encrypt(self, owner: str, secret: str) -> str:
        """The text to store for a secret of `owner`; it is plain text if there is no key."""
        if not self.encrypts:
            return PLAIN + secret
        return FERNET + self._keys[0].encrypt(f"{owner}\n{secret}".encode()).decode()

    def decrypt(self, owner: str, encrypted: str) -> str:
        """The secret of `owner` in a stored text. Errors: Invalid, naming the setting, if no key decrypts it."""
        if encrypted.startswith(PLAIN):
            return encrypted.removeprefix(PLAIN)
        for key in self._keys:
            if (text := _decrypt(key, encrypted)) is not None:
                whose, _, secret = text.partition("\n")
                if whose != owner:
                    raise Invalid(
                        f"the database has the secret of {whose} in the place of the secret of {owner}",
                        field=FIELD,
                    )
                return secret
        raise Invalid(
            f"the secret of {owner} is encrypted with another key; configure the file of that key here, or add the "
            "file to secrets_key_files_previous",
            field=FIELD,
        )

    def is_encrypted_by_current_key(self, kept: str) -> bool:
        """Whether the stored text `kept` is encrypted with the current key, or plain if there is no key."""
        return _decrypt(self._keys[0], kept) is not None if self.encrypts else kept.startswith(PLAIN)


def read_encryption(key_file: str, previous_files: str) -> Encryption:
    """Read the current key from `key_file`, and previous keys from files separated by `;`. Errors: Invalid."""
    previous = [part.strip() for part in previous_files.split(";") if part.strip()]
    key = _read_key(key_file, FIELD) if key_file else b""
    return Encryption(key, [_read_key(path, "secrets_key_files_previous") for path in previous])


def _read_key(path: str, field: str) -> bytes:
    try:
        key = Path(path).read_bytes().strip()
        _fernet(key)
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}", field=field) from None
    except Invalid as error:
        raise Invalid(f"{path}: {error.message}", field=field) from None
    return key


def _fernet(key: bytes) -> "Fernet":
    # The import takes a tenth of a second, and most name servers do not need it.
    from cryptography.fernet import Fernet

    try:
        return Fernet(key.replace(b"+", b"-").replace(b"/", b"_"))
    except ValueError:
        raise Invalid("not a valid key; create one with `openssl rand -base64 32`", field=FIELD) from None


def _decrypt(key: "Fernet", kept: str) -> str | None:
    from cryptography.fernet import InvalidToken

    try:
        return key.decrypt(kept.removeprefix(FERNET)).decode()
    except InvalidToken:
        return None
