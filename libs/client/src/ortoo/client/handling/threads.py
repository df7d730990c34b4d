"""Threads for handlers that are plain functions."""

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Job = tuple["Future[Any]", Callable[[], Any]]


class HandlerThreads(Executor):
    """Threads that are started when they are needed, and end when this object is no longer used.

    Unlike the threads of `ThreadPoolExecutor`, they do not delay the end of the process if a handler never returns.
    """

    def __init__(self, count_max: int) -> None:
        """At most `count_max` threads; further work waits for one of them."""
        self._count_max = count_max
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._busy = _Counter()
        self._thread_count = 0
        weakref.finalize(self, self._jobs.put, None).atexit = False

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Run `work` in a thread. Only the loop of the consumer calls this."""
        future: Future[T] = Future()
        self._jobs.put((future, lambda: work(*args, **kwargs)))
        if self._busy.add(1) > self._thread_count < self._count_max:
            self._thread_count += 1
            name = f"ortoo-handler-{self._thread_count}"
            threading.Thread(target=_serve, args=(self._jobs, self._busy), name=name, daemon=True).start()
        return future


class _Counter:
    """The number of jobs that wait or run."""

    def __init__(self) -> None:
        self._value = 0
        self._lock = threading.Lock()

    def add(self, change: int) -> int:
        with self._lock:
            self._value += change
            return self._value


def _serve(jobs: "SimpleQueue[Job | None]", busy: _Counter) -> None:
    while (job := jobs.get()) is not None:
        future, work = job
        if future.set_running_or_notify_cancel():
            try:
                result = work()
            except BaseException as error:
                busy.add(-1)
                future.set_exception(error)
            else:
                busy.add(-1)
                future.set_result(result)
                del result
        else:
            busy.add(-1)
        del job, future, work  # they may refer to large objects
    jobs.put(None)  # for the next thread
