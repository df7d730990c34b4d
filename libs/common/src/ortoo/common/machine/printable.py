"""Text for a terminal: characters that would change the terminal or the order of the text are shown as escapes.

Names, bodies and errors may come from any client. An escape sequence could otherwise reach the clipboard or hide text.
"""

import re

_UNSAFE = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff"
"""C0, DEL and C1, bidirectional controls, separators of lines, and surrogates, which cannot be written."""
_IN_LINE = re.compile(f"[{_UNSAFE}]")
_IN_TEXT = re.compile(f"(?![\n\t])[{_UNSAFE}]")


def printable(text: str) -> str:
    """The text without unsafe characters; line breaks and tabs stay."""
    return _IN_TEXT.sub(_escaped, text)


def printable_line(text: str) -> str:
    """The text without unsafe characters, on one line."""
    return _IN_LINE.sub(_escaped, text)


def printable_json(line: str) -> str:
    """A line of JSON with the value of `line`, where unsafe characters in texts are written as JSON's escapes."""
    return _IN_LINE.sub(lambda found: f"\\u{ord(found.group()):04x}", line)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
