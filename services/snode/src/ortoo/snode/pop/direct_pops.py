"""Pops that wait at the enodes themselves: the fastest delivery, for a limited number of pops."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace

from ortoo.common.errors import Conflict, OrtooError
from ortoo.common.process.containment import as_ortoo_error
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.pop.call import PopCall, PopResult, PopSource, merge
from ortoo.snode.pop.source_pops import SourcePops

PATIENCE_S = 0.1
"""Time after which the next source is asked, too. A frozen enode would delay it for the timeout of requests."""


class DirectPops:
    """Pops over several sources. Each waits at each source with a request of its own."""

    def __init__(self, runtime: Runtime, pops: SourcePops) -> None:
        self.waiting = 0
        """The number of calls that may wait."""
        self._runtime = runtime
        self._pops = pops
        self._rotation = 0

    async def pop_or_wait(self, sources: Sequence[PopSource], call: PopCall) -> PopResult:
        """As `pop`, counted in `waiting`."""
        self.waiting += 1
        try:
            return await self.pop(sources, call)
        finally:
            self.waiting -= 1

    async def pop(self, sources: Sequence[PopSource], call: PopCall) -> PopResult:
        """Pop from each source without waiting. If all are empty, wait at all sources for the first answer."""
        self._rotation += 1
        at = self._rotation % len(sources)
        rotated = [*sources[at:], *sources[:at]]
        if len(rotated) > 1:
            found = await self._pop_in_turn(rotated, call)
            if found.batches or not call.wait_ms:
                return found
        return await self._pop_any(rotated, call)

    async def _pop_in_turn(self, sources: Sequence[PopSource], call: PopCall) -> PopResult:
        """Pop from one source after another, until there are enough messages.

        A source that does not answer soon does not delay the next one. It is waited for only if no other has messages.
        """
        results: list[PopResult] = []
        failures: list[OrtooError] = []
        slow: list[asyncio.Task[PopResult | OrtooError]] = []
        try:
            for source in sources:
                room = call.messages_max - _count(results)
                if room <= 0:
                    break
                task = self._start(source, replace(call, messages_max=room, wait_ms=0))
                slow.append(task)
                await asyncio.wait((task,), timeout=PATIENCE_S)
                if task.done():
                    _sort(slow.pop().result(), results, failures)
            while slow and not call.wait_ms and not _count(results):
                await self._take_first(slow, call, results, failures)
        except BaseException:
            self._pops.release_later(results)
            raise
        finally:
            self._end(slow)
        if len(failures) == len(sources) and not call.wait_ms:
            raise failures[0]
        return merge(results)

    async def _pop_any(self, sources: Sequence[PopSource], call: PopCall) -> PopResult:
        """Wait at all sources; answers that arrive together are merged."""
        if len(sources) == 1:
            return await self._pops.pop(sources[0], call)
        tasks = [self._start(source, call) for source in sources]
        results: list[PopResult] = []
        failures: list[OrtooError] = []
        try:
            while tasks and not results:  # an unreachable enode delays only its own pop
                await self._take_first(tasks, call, results, failures)
        except BaseException:
            self._pops.release_later(results)
            raise
        finally:
            self._end(tasks)
        if not results:
            raise failures[-1]
        return merge(results)

    def _start(self, source: PopSource, call: PopCall) -> "asyncio.Task[PopResult | OrtooError]":
        # A task, not a future of one: a cancelled pop must notice it at once, or its messages would be lost.
        return self._runtime.background.run_contained("pop", _pop_or_error(self._pops.pop(source, call)))

    async def _take_first(
        self,
        tasks: "list[asyncio.Task[PopResult | OrtooError]]",
        call: PopCall,
        results: list[PopResult],
        failures: list[OrtooError],
    ) -> None:
        """Wait for the first answers of pops, and move them from `tasks`, except messages above the maximum.

        Errors: Conflict, which concerns all sources.
        """
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in [one for one in tasks if one.done()]:
            found = task.result()
            if not isinstance(found, PopResult) or _count([*results, found]) <= call.messages_max:
                tasks.remove(task)
                _sort(found, results, failures)

    def _end(self, tasks: "Sequence[asyncio.Task[PopResult | OrtooError]]") -> None:
        """Cancel pops that are not needed any more, and release their messages."""
        late = [task.result() for task in tasks if task.done() and not task.cancelled()]
        self._pops.release_later([one for one in late if isinstance(one, PopResult)])
        for task in tasks:
            task.cancel()


def _count(results: Sequence[PopResult]) -> int:
    """The number of messages."""
    return sum(len(batch.popped.offsets) for one in results for batch in one.batches)


def _sort(found: PopResult | OrtooError, results: list[PopResult], failures: list[OrtooError]) -> None:
    """Add the outcome of a pop to the results or the failures. Errors: Conflict, which concerns all sources."""
    if isinstance(found, Conflict):
        raise found
    if isinstance(found, OrtooError):
        failures.append(found)
    else:
        results.append(found)


async def _pop_or_error(pop: Awaitable[PopResult]) -> PopResult | OrtooError:
    """Wait for a pop; returns its result, or its error instead of raising it."""
    try:
        return await pop
    except Exception as error:
        return as_ortoo_error(error, "pop")
