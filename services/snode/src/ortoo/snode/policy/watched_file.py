"""A small text file that an operator edits while the process runs."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from ortoo.common.errors import Invalid
from ortoo.common.logs.logger import get_logger
from ortoo.snode import log_events

_log = get_logger("files")


class WatchedFile:
    """Passes on its text when it has changed; the text of a missing file is empty."""

    def __init__(self, path: str, what: str, take: Callable[[str], object]) -> None:
        """Follow the file at `path`, empty = none; `what` is its name in messages, `take` may raise Invalid."""
        self.path = path
        self._what = what
        self._take = take
        self._seen: tuple[int, int] | None = None

    async def begin(self) -> None:
        """Pass on the present text. Errors: Invalid for a wrong text."""
        text = await asyncio.to_thread(self._news)
        self._take(text or "")

    async def look(self) -> None:
        """Pass on the text if it has changed. A wrong or unreadable one is logged and changes nothing."""
        text = await asyncio.to_thread(self._news) if self.path else None
        if text is None:
            return
        try:
            self._take(text)
        except Invalid as error:
            _log.emit(log_events.POLICY_FILE_REJECTED, what=self._what, file=self.path, reason=str(error))
        else:
            _log.emit(log_events.POLICY_FILE_RELOADED, what=self._what, file=self.path)

    def _news(self) -> str | None:
        path = Path(self.path)
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            text = path.read_text() if stamp != self._seen else ""
        except FileNotFoundError:
            stamp, text = (0, 0), ""
        except (OSError, UnicodeDecodeError) as error:
            _log.emit(log_events.POLICY_FILE_UNREADABLE, what=self._what, file=self.path, reason=str(error))
            return None
        if stamp == self._seen:
            return None
        self._seen = stamp
        return text
