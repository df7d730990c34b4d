"""Pops that wait in this snode, and ask only enodes that may have messages. So an idle pop costs the enodes nothing."""

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ortoo.common.errors import Conflict, OrtooError, Unavailable
from ortoo.common.groups.pop import AwaitRequest
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.pop.call import PopCall, PopResult, PopSource, merge
from ortoo.snode.pop.source_pops import SourcePops
from ortoo.snode.pop.watches import PopWatch, PopWatches, WaitingPop

AttemptKey = tuple[str, str, str]
"""Group, topic, attempt id."""
ENDS_PER_S, ENDS_OF_LONG_PER_S = 16, 4
"""The number of times in a second at which idle pops end, so that several end together. A poll that ends with 37 others
costs a third less than one that ends with seven. Both are powers of two, so that these times coincide."""
LONG_POP_MS = 10_000
"""Pops that wait this long may end a quarter of a second late."""
ENDS_AT_ONCE_MAX = 50
"""Further idle pops end at times between, because pops that end together hold up other calls."""
ENDS_PER_S_MAX = 1024
"""Pops that began within a millisecond always end together."""


@dataclass(eq=False, slots=True)
class IdlePop:
    """A pop that waits without a task, because no enode has messages for it."""

    call: PopCall
    watches: Sequence[PopWatch]
    deadline_s: float
    """The monotonic time at which the pop ends without messages."""
    waiting: WaitingPop

    @property
    def woken(self) -> "asyncio.Future[None]":
        """Done when an enode has to be asked, or when its time has ended."""
        return self.waiting.woken

    @property
    def is_undisturbed(self) -> bool:
        """Whether no enode has to be asked, and there is no error."""
        waiting = self.waiting
        return not (waiting.is_cancelled or waiting.failures) and all(
            one.is_quiet and one.error is None for one in self.watches
        )


class SharedPops:
    """Pops over several sources that share the waits of all pops of this snode."""

    def __init__(self, runtime: Runtime, pops: SourcePops, watches: PopWatches) -> None:
        self._runtime = runtime
        self._pops = pops
        self._watches = watches
        self._waiting: defaultdict[AttemptKey, set[WaitingPop]] = defaultdict(set)
        self._ends: Counter[float] = Counter()
        """The number of idle pops that end at each monotonic time."""
        self._rotation = 0
        self.waiting = 0
        """The number of pops that wait."""

    async def pop(self, sources: Sequence[PopSource], call: PopCall, *, asks_all: bool) -> PopResult:
        """Pop from sources that may have messages; waits up to `call.wait_ms` for the first message.

        With `asks_all`, quiet enodes are asked first, because they may hold messages of an earlier pop of the attempt.
        Errors: Conflict, and that of a source if all sources fail.
        """
        clock = self._runtime.clock
        deadline_s = clock.monotonic_s() + call.wait_ms / 1000
        failed: dict[PopWatch, OrtooError] = {}
        """The last error of each source that refuses pops or was unreachable for a time."""
        with self._watches.use([(one.enode, self._pops.await_request(one, call)) for one in sources]) as watches:
            self._rotation += 1
            at = self._rotation % len(sources)
            pairs = [*zip(sources, watches, strict=True)]
            pairs = pairs[at:] + pairs[:at]
            while True:
                found = await self._ask(
                    [pair for pair in pairs if _is_open(pair[1], failed) and (asks_all or not pair[1].is_quiet)],
                    call,
                    failed,
                )
                asks_all = False
                if found.batches or found.has_others:
                    return found
                if len(failed) == len(watches):
                    raise next(iter(failed.values()))
                if clock.monotonic_s() >= deadline_s:
                    unreachable = [error for one in watches if (error := failed.get(one, one.error)) is not None]
                    if len(unreachable) == len(watches):
                        raise unreachable[0]
                    return PopResult([], next((one.blocked_reason for one in watches if one.blocked_reason), ""))
                for watch, error in (await self._wait(watches, failed, call, deadline_s)).items():
                    if isinstance(error, Conflict):
                        raise error
                    failed[watch] = error

    def begin(self, places: Sequence[tuple[str, AwaitRequest]], call: PopCall, now_s: float) -> IdlePop | None:
        """Begin to wait without a task; None if an enode has to be asked now.

        The caller calls `stop_waiting` and `leave`, in this order, after `woken` or before.
        """
        watches = self._watches.use_quiet(places)
        if watches is None:
            return None
        waiting = WaitingPop(asyncio.get_running_loop().create_future())
        self._note(waiting, call)
        until_s = end_s(now_s, call.wait_ms, self._ends)
        self._ends[until_s] += 1
        self._watches.add(waiting, watches, until_s)
        return IdlePop(call, watches, until_s, waiting)

    def stop_waiting(self, idle: IdlePop) -> None:
        """Stop the wait of an idle pop, which is then no longer woken."""
        self._watches.remove(idle.waiting, idle.watches)
        self._forget(idle.waiting, idle.call)
        self._ends[idle.deadline_s] -= 1
        if not self._ends[idle.deadline_s]:
            del self._ends[idle.deadline_s]

    def leave(self, idle: IdlePop) -> None:
        """End the use of its watches. If it was woken, others are woken instead."""
        self._watches.leave(idle.watches)

    def cancel(self, call: PopCall) -> None:
        """Wake the waiting pops of an attempt. They fail with Conflict."""
        for pop in self._waiting.get(_attempt(call), ()):
            pop.is_cancelled = True
            pop.wake()

    async def _ask(
        self, pairs: Sequence[tuple[PopSource, PopWatch]], call: PopCall, failed: dict[PopWatch, OrtooError]
    ) -> PopResult:
        """Pop from sources in turn without waiting, until there are enough messages.

        Refusals are added to `failed`. An enode that does not answer becomes quiet. Other sources leave `failed`.
        """
        results: list[PopResult] = []
        room = call.messages_max
        try:
            for source, watch in pairs:
                if room <= 0:
                    break
                try:
                    result = await self._pops.pop(source, replace(call, messages_max=room, wait_ms=0))
                except Conflict:
                    raise
                except Unavailable as error:
                    watch.on_unreachable(error)
                    continue
                except OrtooError as error:
                    failed[watch] = error
                    continue
                failed.pop(watch, None)
                if result.is_empty:
                    watch.on_empty(result.blocked_reason)
                results.append(result)
                room -= sum(len(one.popped.offsets) for one in result.batches)
        except BaseException:
            self._pops.release_later(results)
            raise
        return merge(results)

    async def _wait(
        self, watches: Sequence[PopWatch], failed: Mapping[PopWatch, OrtooError], call: PopCall, until_s: float
    ) -> dict[PopWatch, OrtooError]:
        pop = WaitingPop(asyncio.get_running_loop().create_future(), failed=failed)
        self._note(pop, call)
        try:
            return await self._watches.wait([one for one in watches if _is_open(one, failed)], until_s, pop=pop)
        finally:
            self._forget(pop, call)
            if pop.is_cancelled:
                raise Conflict("this pop was cancelled by its client", field="attempt_id")

    def _note(self, pop: WaitingPop, call: PopCall) -> None:
        self._waiting[_attempt(call)].add(pop)
        self.waiting += 1

    def _forget(self, pop: WaitingPop, call: PopCall) -> None:
        self.waiting -= 1
        siblings = self._waiting[_attempt(call)]
        siblings.discard(pop)
        if not siblings:
            del self._waiting[_attempt(call)]


def end_s(now_s: float, wait_ms: int, ends: Mapping[float, int]) -> float:
    """When an idle pop ends that begins now: a little later than its wait. `ends` are the numbers of pops by time."""
    ends_per_s = ENDS_OF_LONG_PER_S if wait_ms >= LONG_POP_MS else ENDS_PER_S
    while True:
        until_s = math.ceil((now_s + wait_ms / 1000) * ends_per_s) / ends_per_s
        if ends.get(until_s, 0) < ENDS_AT_ONCE_MAX or ends_per_s >= ENDS_PER_S_MAX:
            return until_s
        ends_per_s *= 2


def _attempt(call: PopCall) -> AttemptKey:
    return call.group, call.topic, call.attempt_id


def _is_open(watch: PopWatch, failed: Mapping[PopWatch, OrtooError]) -> bool:
    """Whether a source may return messages before the pop ends: it does not refuse pops."""
    return isinstance(failed.get(watch), Unavailable | None)
