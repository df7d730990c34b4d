"""Pops that wait at the enodes themselves: the fastest delivery, for a limited number of pops."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace

from ortoo.common.errors import Conflict, OrtooError, Unavailable
from ortoo.common.process.containment import as_ortoo_error
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.pop.call import PopCall, PopResult, PopSource, merge
from ortoo.snode.pop.source_pops import SourcePops


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
        results: list[PopResult] = []
        failures: list[OrtooError] = []
        if len(rotated) > 1:
            try:
                for source in rotated:
                    room = call.messages_max - sum(len(one.popped.offsets) for one in merge(results).batches)
                    if room <= 0:
                        break
                    try:
                        results.append(await self._pops.pop(source, replace(call, messages_max=room, wait_ms=0)))
                    except Conflict:
                        raise
                    except OrtooError as error:
                        failures.append(error)
            except BaseException:
                self._pops.release_later(results)
                raise
            if len(failures) == len(rotated) and not call.wait_ms:
                raise failures[0]
            merged = merge(results)
            if merged.batches or not call.wait_ms:
                return merged
        return await self._pop_any(rotated, call)

    async def _pop_any(self, sources: Sequence[PopSource], call: PopCall) -> PopResult:
        """Wait at all sources; answers that arrive together are merged."""
        if len(sources) == 1:
            return await self._pops.pop(sources[0], call)
        # These are tasks, not futures of them: a cancelled pop must notice it at once, or its messages would be lost.
        tasks = [
            self._runtime.background.run_contained("pop", _pop_or_error(self._pops.pop(source, call)))
            for source in sources
        ]
        waiting: set[asyncio.Task[PopResult | OrtooError]] = set(tasks)
        taken: set[asyncio.Task[PopResult | OrtooError]] = set()
        results: list[PopResult] = []
        failure: OrtooError = Unavailable("nothing could be popped")
        try:
            while waiting and not results:  # an unreachable enode delays only its own pop
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                taken |= done
                for found in [task.result() for task in tasks if task in done]:
                    if isinstance(found, OrtooError):
                        failure = found
                    else:
                        results.append(found)
            if not results:
                raise failure
            return merge(results)
        finally:
            late = [task.result() for task in tasks if task.done() and not task.cancelled() and task not in taken]
            self._pops.release_later([one for one in late if isinstance(one, PopResult)])
            for task in tasks:
                task.cancel()


async def _pop_or_error(pop: Awaitable[PopResult]) -> PopResult | OrtooError:
    """Wait for a pop; returns its result, or its error instead of raising it."""
    try:
        return await pop
    except Exception as error:
        return as_ortoo_error(error, "pop")
