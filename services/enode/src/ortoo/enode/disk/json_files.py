"""Small files that people can read: one line of JSON and one with its CRC-32C in hex."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ortoo.common.errors import DataLoss, Unsupported
from ortoo.common.records.sealed_batch import crc32c
from ortoo.enode.disk.atomic_files import read_file, write_atomically
from ortoo.enode.disk.disk import Disk

T = TypeVar("T")


def write_json_file(disk: Disk, file: Path, version: int, fields: dict[str, Any]) -> None:
    """Replace a file, durably. Errors: OSError."""
    line = json.dumps({"version": version, **fields}, sort_keys=True).encode() + b"\n"
    write_atomically(disk, file, line + b"crc32c %08x\n" % crc32c(line), uses_reserve=True)


def read_json_file(disk: Disk, file: Path, version: int, advice: str, make: Callable[[dict[str, Any]], T]) -> T | None:
    """Call `make` with the fields of a file and return its result; None without a file.

    Errors: DataLoss with `advice` when the file is damaged, Unsupported when its version is above `version`.
    """
    data = read_file(disk, file)
    if data is None:
        return None
    line, _, rest = data.partition(b"\n")
    line += b"\n"
    if rest.strip() != b"crc32c %08x" % crc32c(line):
        raise DataLoss(f"{file} is damaged: {advice}")
    fields: dict[str, Any] = json.loads(line)
    if fields.pop("version") > version:
        raise Unsupported(f"{file} is of a newer version: upgrade this process")
    try:
        return make(fields)
    except (KeyError, TypeError, ValueError) as error:
        raise DataLoss(f"{file} is damaged: {advice}") from error
