"""The file that limits are written in; it is read again when it changes, and missing means no limits.

[[rule]]
unit = "requests"                       # or "bytes"
per_second = 500
method = "ProducerService/Publish"      # left out: all methods together
topic = "orders"                        # left out: all topics together
"""

import asyncio
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ortoo.common.errors import Invalid
from ortoo.common.process.logs import get_logger
from ortoo.snode.policy.flow_control import FlowControl, FlowRule, FlowUnit

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


_log = get_logger("flow control")
_KEYS = frozenset({"unit", "per_second", "method", "topic"})


class FlowControlFile:
    """Keeps flow control as its file says."""

    def __init__(self, path: str, flow: FlowControl) -> None:
        """Follow the file at `path`; empty = none."""
        self.path = path
        self._file = WatchedFile(path, "limits on requests")
        self._flow = flow

    async def look(self) -> None:
        """Read the file if it has changed; one that is wrong changes nothing and is told."""
        text = await self._file.news()
        if text is None:
            return
        try:
            self._flow.replace(rules_of(text))
        except Invalid as error:
            _log.error("the file of limits is wrong; going on as before", file=self.path, reason=str(error))
        else:
            _log.info("limits taken over", file=self.path, rules=len(self._flow.rules))


def rules_of(text: str) -> list[FlowRule]:
    """The limits in a file's text. Errors: Invalid, naming the rule."""
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"this is not TOML: {error}", field="rule") from None
    if unknown := sorted(data.keys() - {"rule"}):
        raise Invalid(f"{unknown[0]!r} is unknown; give [[rule]] tables", field=unknown[0])
    rules = []
    for number, one in enumerate(data.get("rule", [])):
        field = f"rule[{number}]"
        if unknown := sorted(one.keys() - _KEYS):
            raise Invalid(f"{unknown[0]!r} is unknown; give {', '.join(sorted(_KEYS))}", field=field)
        try:
            unit = FlowUnit[str(one.get("unit", "requests")).upper()]
            rule = FlowRule(unit, float(one["per_second"]), str(one.get("method", "")), str(one.get("topic", "")))
        except (KeyError, TypeError, ValueError):
            raise Invalid("give unit = requests or bytes, and per_second as a number", field=field) from None
        rule.check()
        rules.append(rule)
    return rules
