"""A small text file that an operator edits while the process runs."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from ortoo.common.errors import Invalid
from ortoo.common.logs.logger import get_logger
from ortoo.snode import log_events

_log = get_logger("files")


class WatchedFile:
    """Passes the text of a file to `apply` when it has changed; a missing file counts as empty text."""

    def __init__(self, path: str, description: str, apply: Callable[[str], object]) -> None:
        """Follow the file at `path`; empty = no file. `description` is its name in logs. `apply` may raise Invalid."""
        self.path = path
        self._description = description
        self._apply = apply
        self._last_stamp: tuple[int, int] | None = None

    async def load(self) -> None:
        """Pass the file's present text to `apply`. Errors: Invalid for a wrong text."""
        text = await asyncio.to_thread(self._read_if_changed)
        self._apply(text or "")

    async def reload_if_changed(self) -> None:
        """Pass the file's text to `apply` if it has changed. A wrong or unreadable file is logged and has no effect."""
        text = await asyncio.to_thread(self._read_if_changed) if self.path else None
        if text is None:
            return
        try:
            self._apply(text)
        except Invalid as error:
            _log.emit(log_events.POLICY_FILE_REJECTED, what=self._description, file=self.path, reason=str(error))
        else:
            _log.emit(log_events.POLICY_FILE_RELOADED, what=self._description, file=self.path)

    def _read_if_changed(self) -> str | None:
        path = Path(self.path)
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            text = path.read_text() if stamp != self._last_stamp else ""
        except FileNotFoundError:
            stamp, text = (0, 0), ""
        except (OSError, UnicodeDecodeError) as error:
            _log.emit(log_events.POLICY_FILE_UNREADABLE, what=self._description, file=self.path, reason=str(error))
            return None
        if stamp == self._last_stamp:
            return None
        self._last_stamp = stamp
        return text
