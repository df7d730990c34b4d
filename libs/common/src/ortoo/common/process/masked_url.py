"""URLs of databases and stores without their passwords, for every text that people or programs see."""

import re
from collections.abc import Iterator
from urllib.parse import unquote_plus

MASK = "***"
_USER_INFO = re.compile(r"://[^:/]*:(.*)@", re.DOTALL)
"""Up to the last @, because passwords may have @, / and ? without being encoded."""
_PARAMETER = re.compile(r"[?&;]([^=?&;]*)=([^&;]*)")
_SECRET_NAME = re.compile("pass(word|wd)?$|pwd$|secret|token|credential", re.IGNORECASE)


def mask_url(text: str) -> str:
    """The text with each password of a URL replaced; a text that is not a URL is unchanged."""
    if "://" not in text:
        return text
    shown, at = "", 0
    for begin, end in sorted(_secrets(text)):
        if begin >= at:
            shown += text[at:begin] + MASK
        at = max(at, end)
    return shown + text[at:]


def _secrets(text: str) -> Iterator[tuple[int, int]]:
    """The start and end of each password. The ranges may overlap, because a password can look like part of a URL."""
    if (found := _USER_INFO.search(text)) is not None:
        yield found.span(1)
    for parameter in _PARAMETER.finditer(text):
        if _SECRET_NAME.search(unquote_plus(parameter[1])):
            yield parameter.span(2)
