"""Failures that ended the work for one peer and nothing else: each is counted, and told in few lines of the log."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from ortoo.common.errors import Internal, OrtooError
from ortoo.common.logs import log_events
from ortoo.common.logs.logger import get_logger

CONTAINED_FAILURES: Counter[str] = Counter()
"""Where to how many failures ended there, since the process began."""
LINE_INTERVAL_S = 1.0
"""Of one kind of failure at one place the log says at most one line in this time."""
KINDS_MAX = 1_000
"""So many kinds of failures are remembered; names of places are few and never a client's."""
_log = get_logger("containment")
_told: OrderedDict[tuple[str, type[BaseException]], tuple[float, int]] = OrderedDict()
"""Kind to when its last line was said, on the loop's clock, and how many were left out since."""


def contain(where: str, error: BaseException, **about: object) -> None:
    """Note a failure that ends here: a count, and a line unless one of its kind was said a moment ago.

    `where` is one of a few words or a method's name, never what a client says. A defect is told with its traceback,
    an OrtooError in one line.
    """
    CONTAINED_FAILURES[where] += 1
    kind, now_s = (where, type(error)), asyncio.get_running_loop().time()
    said_s, left_out = _told.get(kind, (-float("inf"), 0))
    if 0 <= now_s - said_s < LINE_INTERVAL_S:
        _told[kind] = (said_s, left_out + 1)
        return
    _told[kind] = (now_s, 0)
    _told.move_to_end(kind)
    if len(_told) > KINDS_MAX:
        _told.popitem(last=False)
    if left_out:
        about["left_out"] = left_out
    if isinstance(error, OrtooError):
        notes = {"notes": "; ".join(error.__notes__)} if getattr(error, "__notes__", None) else {}
        said = {"where": where, "kind": type(error).__name__, "reason": str(error), **notes}
        _log.emit(log_events.FAILURE_CONTAINED, **said, **about)
    else:
        _log.emit(log_events.DEFECT_CONTAINED, where=where, exc_info=error, **about)


def told_as(error: Exception, where: str) -> OrtooError:
    """`error` as whoever waits hears of it: an OrtooError as it is, anything else as Internal, noted by `contain`."""
    if isinstance(error, OrtooError):
        return error
    contain(where, error)
    return Internal(f"{where} met a defect; the server's log has the details")


class Scope:
    """The tasks that serve one peer, client, stream or request. One that fails ends the scope, never the process.

    The failure is noted by `contain`, the scope's other tasks are cancelled, and `failed` hears of it, so that
    whoever waits gets an answer. Made by `Background.scope`, which ends it with itself.
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
        """Run `work` until it ends or the scope does, for its result; in a scope that is over it ends at once."""
        task = self._spawn(f"{self._where}:{name}", self._run(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it may have been cancelled before it began
        if self._is_over:
            task.cancel()
        return task

    def cancel(self) -> None:
        """The peer is gone: end all tasks. May be called again, and by one of them."""
        self._is_over = True
        for task in tuple(self._tasks):
            task.cancel()

    async def _run(self, work: Coroutine[Any, Any, object]) -> object:
        try:
            return await work
        except Exception as error:
            contain(self._where, error)
            if (own := asyncio.current_task()) is not None:
                self._tasks.discard(own)
            self.cancel()
            try:
                self._failed(error)
            except Exception as second:
                contain(f"{self._where}: end", second)
        return None


def place_of(task: asyncio.Task[Any]) -> str:
    """Where a task waits: its functions and their lines, from the outermost to what is awaited."""
    return " > ".join(_frames(task.get_coro()))


def _frames(awaited: Any) -> Iterator[str]:
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            yield f"{frame.f_code.co_qualname}:{frame.f_lineno}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
