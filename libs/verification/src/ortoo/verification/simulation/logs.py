"""The product's logs during a run: each line with its process and virtual time, and defects become findings."""

import contextlib
import logging
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any, TextIO

import structlog

from ortoo.common.logs.logger import restored_configuration
from ortoo.testing.simulation.kernel.process import current_process
from ortoo.testing.simulation.world import World


class _Written:
    """The logger that structlog writes lines with."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def msg(self, text: str) -> None:
        self._file.write(text + "\n")

    debug = info = warning = error = critical = msg


@contextlib.contextmanager
def simulated_logs(world: World, file: TextIO | None = None, *, level: str = "info") -> Iterator[None]:
    """Capture the logs within the block. A line with a traceback is a finding: an uncaught defect."""

    def stamped(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        process = current_process()
        event["at_s"] = round(world.loop.time(), 6)
        event["process"] = process.name if process is not None else "-"
        error = event.get("exc_info")
        if error and (process is None or process.is_alive):
            world.violations.add("no error is lost", f"{event['process']}: {event.get('event')}: {_said(error)}")
        if file is None:
            raise structlog.DropEvent
        return event

    with restored_configuration():
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                stamped,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(default=str),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
            logger_factory=lambda *_: _Written(file) if file is not None else structlog.ReturnLogger(),
            cache_logger_on_first_use=False,
        )
        yield


def _said(error: Any) -> str:
    if isinstance(error, tuple):
        error = error[1]
    elif not isinstance(error, BaseException):
        error = sys.exc_info()[1]
    return repr(error)
