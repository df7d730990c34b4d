"""Threads that take turns with the loop, so that blocking calls work on virtual time and the seed decides everything.

The loop and the threads of a test never run at the same time. A thread runs while the loop waits for it, until it
returns or makes a blocking call of the client. Then the loop runs until the call is done.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from ortoo.client.blocking.loop_thread import LoopCall, LoopThread
from ortoo.client.core.closed import ClientClosed
from ortoo.common.errors import Conflict

if TYPE_CHECKING:
    from ortoo.testing.pytest_broker.loop import BrokerLoop

T = TypeVar("T")


class _Ended(BaseException):
    """The broker is closed; no code should catch this."""


class TurnTakingThread:
    """A thread that runs a function of the test."""

    def __init__(self, loop: "BrokerLoop", work: Callable[[], Any], answer: "asyncio.Future[Any]") -> None:
        """A thread that has not started; `answer` gets the result or the error of `work`."""
        self._loop = loop
        self._work = work
        self._answer = answer
        self._its_turn = threading.Semaphore(0)
        self._loops_turn = threading.Semaphore(0)
        self._wanted: asyncio.Future[Any] | None = None
        self._is_ended = False
        self._finish: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name="ortoo-test", daemon=True)

    def take_turn(self, *_: object) -> None:
        """Let the thread run until it returns or waits. Only the loop calls this."""
        if self._thread.ident is None:
            self._thread.start()
            assert self._thread.ident is not None
            self._loop.threads[self._thread.ident] = self
        self._its_turn.release()
        self._loops_turn.acquire()
        if self._finish is not None:
            self._loop.threads.pop(self._thread.ident or 0, None)
            if not self._answer.done():
                self._finish()
        elif self._wanted is not None:
            self._wanted.add_done_callback(self.take_turn)

    def wait(self, wanted: "asyncio.Future[Any]") -> None:
        """Let the loop run until `wanted` is done. Only the thread itself calls this."""
        if self._is_ended:
            raise _Ended
        self._wanted = wanted
        self._loops_turn.release()
        self._its_turn.acquire()
        if self._is_ended:
            raise _Ended

    def end(self) -> None:
        """Let the thread unwind: the event it waits for will not come."""
        self._is_ended = True
        self._its_turn.release()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        self._its_turn.acquire()
        answer = self._answer
        try:
            result = self._work()
        except BaseException as error:
            failure = error
            self._finish = lambda: answer.set_exception(failure)
        else:
            self._finish = lambda: answer.set_result(result)
        self._loops_turn.release()


class TurnTakingLoop(LoopThread):
    """Runs a blocking client on the test's loop instead of a thread of its own."""

    def __init__(self, loop: "BrokerLoop") -> None:
        """Calls come from the test, or from a thread that it started by `asyncio.to_thread` or as a handler."""
        self._opened = {}
        self._is_closed = False
        self._process_id = os.getpid()
        self._turning = loop
        self._owner = threading.get_ident()
        self._context = copy_context()

    def call(self, call: Callable[[], T]) -> T:
        """Run a plain function in turn with the loop."""
        return call()

    def call_soon(self, call: Any, *arguments: Any) -> None:
        """Run a plain function on the loop."""
        self._turning.call_soon(call, *arguments, context=self._context.copy())

    def _end(self, rest_s: Callable[[], float | None]) -> None:
        self._is_closed = True  # the loop belongs to the test and is not closed

    def _begin(self, work: Coroutine[Any, Any, T]) -> LoopCall[T]:
        if self._is_closed:
            work.close()
            raise ClientClosed
        thread = threading.get_ident()
        if thread not in self._turning.threads:
            refused = ""
            if thread != self._owner:
                refused = (
                    "a thread that the test started itself cannot use a broker on virtual time. Pass the work to "
                    "asyncio.to_thread, or use a real broker with blocking_broker.port()"
                )
            elif self._turning.is_running():
                refused = "a blocking call inside a coroutine stops the loop; use ortoo.client or asyncio.to_thread"
            if refused:
                work.close()
                raise Conflict(refused)
        return _Answer(self, self._turning.create_task(work, context=self._context.copy()))

    def _outcome(self, call: LoopCall[T], limit_s: float | None) -> T:
        assert isinstance(call, _Answer)
        try:
            self.finish(call.task, limit_s)
        except BaseException:
            call.cancel()
            raise
        if not call.done:
            call.cancel()
            raise TimeoutError(f"no outcome within {limit_s:g} s; it is unknown")
        return call.task.result()  # type: ignore[no-any-return]

    def finish(self, task: "asyncio.Task[Any]", limit_s: float | None = None) -> None:
        """Let the loop run until `task` is done, at most for `limit_s`."""
        if task.done():
            return

        async def done() -> None:
            await asyncio.wait([task], timeout=limit_s)

        waiting = self._turning.create_task(done(), context=self._context.copy())
        thread = self._turning.threads.get(threading.get_ident())
        if thread is not None:
            thread.wait(waiting)
        else:
            self._turning.run_until_complete(waiting)


class _Answer(LoopCall[T]):
    """The future result of a call. Cancelling it waits until the call has ended."""

    def __init__(self, turns: TurnTakingLoop, task: "asyncio.Task[Any]") -> None:
        self.task = task
        self._turns = turns

    @property
    def done(self) -> bool:
        return self.task.done()

    def cancel(self) -> None:
        if not self.done:
            self.task.cancel()
            self._turns.finish(self.task)
