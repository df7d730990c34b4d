"""Small files for people to read: one line of JSON and one with its CRC-32C in hex."""

import json
from pathlib import Path
from typing import Any

from ortoo.common.errors import DataLoss, Unsupported
from ortoo.common.records.sealed_batch import crc32c


def encode_lines(version: int, fields: dict[str, Any]) -> bytes:
    """The file's bytes."""
    line = json.dumps({"version": version, **fields}, sort_keys=True).encode() + b"\n"
    return line + b"crc32c %08x\n" % crc32c(line)


def decode_lines(data: bytes, file: Path, version: int, advice: str) -> dict[str, Any]:
    """What `encode_lines` wrote. Errors: DataLoss with `advice` when it is damaged, Unsupported when it is newer."""
    line, _, rest = data.partition(b"\n")
    line += b"\n"
    if rest.strip() != b"crc32c %08x" % crc32c(line):
        raise DataLoss(f"{file} is damaged: {advice}")
    fields: dict[str, Any] = json.loads(line)
    if fields.pop("version") != version:
        raise Unsupported(f"{file} is of a newer version: upgrade this process")
    return fields
