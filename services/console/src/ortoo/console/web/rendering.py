"""The rendering of pages. Everything that clients sent is text: it is escaped, and control characters are shown."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup

from ortoo.client import Queue
from ortoo.common.machine.printable import printable, printable_line

BODY_SHOWN_BYTES = 64 << 10
"""The start of a body that a page shows. The whole body can be downloaded."""
CELL_SHOWN_LENGTH = 160
"""The start of a body in a list."""
BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Rendering:
    """The templates of the console."""

    def __init__(self) -> None:
        """Load the templates of this package at their first use."""
        self._environment = jinja2.Environment(
            loader=jinja2.PackageLoader("ortoo.console"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "line": show_line,
            "body": show_body,
            "start": show_start,
            "number": show_number,
            "counted": show_counted,
            "bytes": show_bytes,
            "rate": show_rate,
            "time": show_time,
            "duration": show_duration,
            "segment": path_segment,
            "query": query_of,
            "place": show_place,
        }

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        """The text of a template with these values."""
        return self._environment.get_template(template).render(values)


def show_line(text: object) -> str:
    """A text of a client on one line, without characters that change the order or the look of other text."""
    return printable_line(str(text))


def show_body(body: bytes) -> str:
    """The start of a body as text. Bytes that are not UTF-8 are shown as escapes, so that no value is hidden."""
    return printable(body[:BODY_SHOWN_BYTES].decode(errors="backslashreplace"))


def show_start(body: bytes) -> str:
    """The start of a body on one line, for a list."""
    text = printable_line(body[:CELL_SHOWN_LENGTH].decode(errors="backslashreplace"))
    return f"{text} …" if len(body) > CELL_SHOWN_LENGTH else text


def show_number(value: int) -> str:
    """A number with separators of thousands."""
    return f"{value:,}"


def show_counted(value: int, noun: str) -> str:
    """A number with its noun, in the plural unless the number is 1."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def show_bytes(value: int) -> str:
    """A number of bytes with a unit."""
    amount, unit = float(value), 0
    while amount >= 1024 and unit < len(BYTE_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.1f} {BYTE_UNITS[unit]}" if unit else f"{value} B"


def show_rate(value: float | None) -> str:
    """A number of messages in a second."""
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def show_time(time_ms: int) -> Markup:
    """A time as an element that the switch of the time zone changes; UTC without scripts."""
    if time_ms <= 0:
        return Markup("–")
    try:
        moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return Markup("<span>{}</span>").format(f"{time_ms} ms")
    iso = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    shown = f"{moment:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d} UTC"
    return Markup('<time datetime="{}">{}</time>').format(iso, shown)


def show_duration(duration_ms: int) -> str:
    """A duration with the two largest units."""
    if duration_ms < 1000:
        return f"{max(0, duration_ms)} ms"
    seconds = duration_ms // 1000
    for size, unit, small_size, small_unit in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            rest = seconds % size // small_size
            return f"{seconds // size} {unit} {rest} {small_unit}" if rest else f"{seconds // size} {unit}"
    return f"{seconds} s"


def path_segment(text: str) -> str:
    """A name as one segment of an address."""
    return quote(text, safe="")


def query_of(values: Mapping[str, object]) -> str:
    """The query of an address; empty values are left out."""
    present = {name: value for name, value in values.items() if value not in ("", None)}
    return f"?{urlencode(present)}" if present else ""


def show_place(queue: Queue, offset: int) -> str:
    """The place of a message."""
    return f"{queue.enode}/{queue.queue_id}@{offset}"


def shell_words(words: Sequence[str]) -> str:
    """A command line that a shell splits into these words."""
    import shlex

    return shlex.join(words)
