"""A small text file that an operator edits while the process runs."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.common.process.logs import get_logger

_log = get_logger("files")


@dataclass(slots=True, eq=False)
class WatchedFile:
    """Tells the text when it has changed; one that is missing has an empty text.

    Follow the file at `path`, empty = none; `what` is its name for people.
    """

    path: str
    what: str
    _seen: tuple[int, int] | None = field(default=None, init=False)

    async def news(self) -> str | None:
        """The text if it has changed since the last call; None otherwise, and when it cannot be read, which is told."""
        return await asyncio.to_thread(self._read) if self.path else None

    def _read(self) -> str | None:
        path = Path(self.path)
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            text = path.read_text() if stamp != self._seen else ""
        except FileNotFoundError:
            stamp, text = (0, 0), ""
        except (OSError, UnicodeDecodeError) as error:
            _log.error("a file cannot be read; going on as before", what=self.what, file=self.path, reason=str(error))
            return None
        if stamp == self._seen:
            return None
        self._seen = stamp
        return text
