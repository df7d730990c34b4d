"""Prints the text of all commands; a test forbids printing elsewhere.

Unsafe characters are escaped, and so are characters that the encoding of the output lacks.
"""

import json
import sys

from ortoo.common.machine.printable import printable, printable_json

CLEAR_SCREEN = "\x1b[H\x1b[2J"


def print_text(text: str) -> None:
    """Print text for people."""
    print(_encodable(printable(text)), flush=True)


def print_json(line: str) -> None:
    """Print a line of JSON."""
    line = printable_json(line)
    print(line if _encodable(line) == line else json.dumps(json.loads(line)), flush=True)


def print_note(text: str) -> None:
    """Print a note for people on standard error, so that it does not mix with the output."""
    print(printable(text), file=sys.stderr)


def print_progress(text: str) -> None:
    """Replace the current line of a terminal on standard error; does nothing without a terminal."""
    if sys.stderr.isatty():
        print(f"\r{printable(text)}", end="", file=sys.stderr, flush=True)


def _encodable(text: str) -> str:
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, errors="backslashreplace").decode(encoding)


def clear_screen() -> None:
    """Clear the terminal on standard output; does nothing without a terminal."""
    if sys.stdout.isatty():
        print(CLEAR_SCREEN, end="")
