"""The token that calls about users carry from snodes to name servers: a file that both have and clients have not."""

import hmac
from pathlib import Path

from ortoo.common.errors import Forbidden, Invalid

ADMIN_TOKEN = "x-ortoo-admin-token"
LENGTH_MIN = 16


def read_admin_token(path: str) -> str:
    """The token in a file; empty when no file is named. Errors: Invalid, naming the setting."""
    if not path:
        return ""
    try:
        token = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} cannot be read: {error}", field="admin_token_file") from None
    if len(token) < LENGTH_MIN or not (token.isascii() and token.isprintable()):
        raise Invalid(f"{path}: give at least {LENGTH_MIN} printable ASCII characters", field="admin_token_file")
    return token


def check_admin_token(expected: str, given: str) -> None:
    """Refuse another token than the expected one; an empty one expects nothing. Errors: Forbidden."""
    if expected and not hmac.compare_digest(expected.encode(), given.encode()):
        raise Forbidden("users are shown and changed through a snode, or with the cluster's token", field=ADMIN_TOKEN)
