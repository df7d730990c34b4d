"""The offset file of a broadcast consumer, with a backup."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from ortoo.client.core.queues import Queue
from ortoo.common.errors import DataLoss, Invalid

FORMAT = 1
BACKUP_SUFFIX = ".bak"
PART_SUFFIX = ".part"


class OffsetFile:
    """One client's offsets in one group. A write goes to a temporary file, is synced, and replaces the old file."""

    def __init__(self, path: Path) -> None:
        """Keep the offsets at `path`, and the previous version beside it."""
        self.path = path
        self.backup = path.with_name(path.name + BACKUP_SUFFIX)

    def read(self) -> dict[Queue, int]:
        """The offsets in the file, or in its backup if the file is missing or damaged; empty on the first start.

        Errors: DataLoss when a file exists and neither file can be read.
        """
        reasons = []
        for path in (self.path, self.backup):
            try:
                return _decode(path.read_bytes())
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, TypeError) as error:
                reasons.append(f"{path}: {error}")
        if reasons:
            raise DataLoss(
                f"the offsets cannot be read ({'; '.join(reasons)}); repair one of the files, or delete both to start "
                "without offsets"
            )
        return {}

    def write(self, offsets: Mapping[Queue, int]) -> None:
        """Replace the offsets; one of the two files is complete at any time. Errors: OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_name(self.path.name + PART_SUFFIX)
        with part.open("wb") as file:
            file.write(_encode(offsets))
            file.flush()
            os.fsync(file.fileno())
        if self._is_whole():
            self.path.replace(self.backup)
        part.replace(self.path)
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _is_whole(self) -> bool:
        """Whether the file is complete; a damaged file must not replace the backup."""
        try:
            _decode(self.path.read_bytes())
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return True


def offset_path(folder: Path, client_id: str, group: str) -> Path:
    """The offset file of a client in a group. Errors: Invalid for a client id that cannot be a folder name."""
    if not client_id or client_id in (".", "..") or "/" in client_id or "\0" in client_id:
        raise Invalid(
            f"{client_id!r} cannot be a folder name; expected a client id of letters, digits and -", field="client_id"
        )
    return folder / client_id / f"{group.replace('%', '%25').replace('|', '%7C')}.json"


def _encode(offsets: Mapping[Queue, int]) -> bytes:
    rows = [
        {"topic": queue.topic, "enode": queue.enode, "queue_id": queue.queue_id, "offset": offset}
        for queue, offset in sorted(offsets.items())
    ]
    return json.dumps({"format": FORMAT, "offsets": rows}, indent=1).encode() + b"\n"


def _decode(text: bytes) -> dict[Queue, int]:
    value = json.loads(text)
    if value["format"] != FORMAT:
        raise ValueError(f"format {value['format']}, expected {FORMAT}")
    return {Queue(row["topic"], row["enode"], int(row["queue_id"])): int(row["offset"]) for row in value["offsets"]}
