"""Failures that end only the work for one peer: each is counted, and logged at a limited rate."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from ortoo.common.errors import Internal, OrtooError
from ortoo.common.logs import log_events
from ortoo.common.logs.logger import get_logger

CONTAINED_FAILURES: Counter[str] = Counter()
"""The number of failures that ended at each place since the process began."""
LINE_INTERVAL_S = 1.0
"""At most one line in this time is logged for one kind of failure at one place."""
KINDS_MAX = 1_000
"""Maximum number of kinds of failures to remember; names of places are few and never come from a client."""
_log = get_logger("containment")
_last_lines: OrderedDict[tuple[str, type[BaseException]], tuple[float, int]] = OrderedDict()
"""By kind: the time of the last line, on the loop's clock, and the number of lines left out since."""


def record_contained(where: str, error: BaseException, **about: object) -> None:
    """Count a failure that is not passed on, and log it unless a failure of its kind was logged a moment ago.

    `where` is a fixed name or a method's name, never a text of a client. A defect is logged with its traceback, an
    OrtooError in one line.
    """
    CONTAINED_FAILURES[where] += 1
    kind, now_s = (where, type(error)), asyncio.get_running_loop().time()
    said_s, left_out = _last_lines.get(kind, (-float("inf"), 0))
    if 0 <= now_s - said_s < LINE_INTERVAL_S:
        _last_lines[kind] = (said_s, left_out + 1)
        return
    _last_lines[kind] = (now_s, 0)
    _last_lines.move_to_end(kind)
    if len(_last_lines) > KINDS_MAX:
        _last_lines.popitem(last=False)
    if left_out:
        about["left_out"] = left_out
    if isinstance(error, OrtooError):
        notes = {"notes": "; ".join(error.__notes__)} if getattr(error, "__notes__", None) else {}
        said = {"where": where, "kind": type(error).__name__, "reason": str(error), **notes}
        _log.emit(log_events.FAILURE_CONTAINED, **said, **about)
    else:
        _log.emit(log_events.DEFECT_CONTAINED, where=where, exc_info=error, **about)


def as_ortoo_error(error: Exception, where: str) -> OrtooError:
    """The error for the caller. An OrtooError is unchanged; another error is recorded and becomes Internal."""
    if isinstance(error, OrtooError):
        return error
    record_contained(where, error)
    return Internal(f"{where} met a defect; the server's log has the details")


class Scope:
    """The tasks that serve one peer, client, stream or request. A task that fails ends the scope, never the process.

    The failure goes to `record_contained`, and the scope's other tasks are cancelled. `failed` is called with the
    failure, so that waiting callers get an answer. `Background.scope` makes a scope, which ends with the Background.
    """

    def __init__(
        self,
        where: str,
        spawn: Callable[[str, Coroutine[Any, Any, object]], asyncio.Task[Any]],
        failed: Callable[[Exception], object],
    ) -> None:
        self._where = where
        self._spawn = spawn
        self._failed = failed
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_over = False

    def start(self, name: str, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        """Run `work` in a task until `work` or the scope ends. In an ended scope, the task is cancelled immediately."""
        task = self._spawn(f"{self._where}:{name}", self._run(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it may have been cancelled before it began
        if self._is_over:
            task.cancel()
        return task

    def cancel(self) -> None:
        """End all tasks, because the peer has disconnected. One of the tasks may call this, also repeatedly."""
        self._is_over = True
        for task in tuple(self._tasks):
            task.cancel()

    async def _run(self, work: Coroutine[Any, Any, object]) -> object:
        try:
            return await work
        except Exception as error:
            record_contained(self._where, error)
            if (own := asyncio.current_task()) is not None:
                self._tasks.discard(own)
            self.cancel()
            try:
                self._failed(error)
            except Exception as second:
                record_contained(f"{self._where}: end", second)
        return None


def waiting_place(task: asyncio.Task[Any]) -> str:
    """The place where a task waits: its functions and their lines, from the outermost to the awaited one."""
    return " > ".join(_frames(task.get_coro()))


def _frames(awaited: Any) -> Iterator[str]:
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            yield f"{frame.f_code.co_qualname}:{frame.f_lineno}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
