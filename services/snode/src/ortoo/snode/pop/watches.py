"""Which enodes have messages for a group. One wait at each enode serves all pops of this snode."""

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ortoo.common.errors import OrtooError, Unavailable, Unsupported
from ortoo.common.groups.pop import AwaitRequest
from ortoo.common.process.containment import as_ortoo_error
from ortoo.common.process.deadlines import DeadlineWheel
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks

OLDER_ENODE_POLL_S = 1.0
"""The interval at which an enode of a version without AwaitMessages is asked for messages."""
PROBE_MS = 3_000
"""The duration of a wait at an enode that did not answer. It then counts as reachable, even if it has no messages."""
UNREACHABLE_PAUSE_S = 1.0
"""The time between two waits at an enode that refuses them, or that answers waits and no pops."""
UNREACHABLE_PAUSE_MAX_S = 5.0
"""The largest pause after repeated failures."""


@dataclass(eq=False, slots=True)
class WaitingPop:
    """A pop that waits until one of its watches is no longer quiet."""

    woken: "asyncio.Future[None]"
    is_cancelled: bool = False
    failures: "dict[PopWatch, OrtooError]" = field(default_factory=dict)
    """The watches whose wait at the enode has failed."""
    failed: "Container[PopWatch]" = ()
    """The watches whose enode was unreachable before. If it still is, this pop is not woken again."""
    deadline: int = 0
    """The number of its deadline while it waits."""

    def wake(self) -> bool:
        """Wake this pop; False if it was woken before."""
        if self.woken.done():
            return False
        self.woken.set_result(None)
        return True


class PopWatch:
    """Whether an enode may have messages for a group in queues of one topic.

    A quiet enode had no messages for the last pop, and its wait reports the next ones. So no pop needs to ask it. The
    enode checks for messages when the wait arrives there. So messages that were stored after the pop are reported. An
    enode that did not answer is quiet, too: the wait is sent to its next leader, and is repeated while pops use it.
    """

    def __init__(
        self,
        enode: str,
        request: AwaitRequest,
        links: EnodeLinks,
        runtime: Runtime,
        on_unused: "Callable[[PopWatch], None]",
    ) -> None:
        self.key = (enode, request)
        self.is_quiet = False
        self.blocked_reason = ""
        """Why the last pop returned no messages although the enode has some."""
        self.error: Unavailable | None = None
        """Why the enode cannot be reached, while it is quiet for this reason."""
        self.users = 0
        """The number of pops that use this watch."""
        self._links = links
        self._runtime = runtime
        self._on_unused = on_unused
        self._unreachable_s = -UNREACHABLE_PAUSE_S
        """When a wait last began because the enode did not answer."""
        self._waiting: dict[WaitingPop, None] = {}
        """In the order of arrival."""

    def on_empty(self, blocked_reason: str) -> None:
        """Note that a pop got no messages from the enode. The enode is now quiet."""
        self.blocked_reason = blocked_reason
        self._start()

    def on_unreachable(self, error: Unavailable) -> None:
        """Note that the enode did not answer. It is now quiet, until its next leader or itself answers a wait."""
        if not self.is_quiet:
            now_s = self._runtime.clock.monotonic_s()
            pause_s = max(0.0, self._unreachable_s + UNREACHABLE_PAUSE_S - now_s)
            self.error, self._unreachable_s = error, now_s + pause_s
            self._start(pause_s)

    def _start(self, pause_s: float = 0.0) -> None:
        if not self.is_quiet:
            self.is_quiet = True
            self._runtime.background.run_contained("pop watch", self._watch(pause_s))

    def wake(self, count: int) -> None:
        """Let waiting pops ask the enode, in the order of their arrival."""
        while count and self._waiting:
            pop = next(iter(self._waiting))
            del self._waiting[pop]
            count -= pop.wake()

    def add(self, pop: WaitingPop) -> None:
        """Wake this pop when its turn comes, or when the wait at the enode fails."""
        self._waiting[pop] = None

    def remove(self, pop: WaitingPop) -> None:
        """Forget a pop that no longer waits."""
        self._waiting.pop(pop, None)

    def drop_if_unused(self) -> None:
        """Drop this watch if no pop uses it and its enode is not quiet."""
        if not self.users and not self.is_quiet:
            self._on_unused(self)

    async def _watch(self, pause_s: float) -> None:
        """Wait until the enode may have messages, then wake the first pop. A failed wait is repeated after a pause."""
        try:
            while True:
                if pause_s:
                    await self._runtime.clock.sleep(pause_s)
                failure = await self._await_messages_or_error()
                if not isinstance(failure, Unavailable) or not self.users:
                    break
                self.error = failure
                self._report(failure, [pop for pop in self._waiting if self not in pop.failed])
                pause_s = min(pause_s + UNREACHABLE_PAUSE_S, UNREACHABLE_PAUSE_MAX_S)
        finally:
            self.is_quiet, self.error = False, None
            self.drop_if_unused()
        if failure is None:
            self.wake(1)
        else:
            self._report(failure, self._waiting)

    def _report(self, failure: OrtooError, pops: Iterable[WaitingPop]) -> None:
        for pop in pops:
            pop.failures[self] = failure
            pop.wake()

    async def _await_messages_or_error(self) -> OrtooError | None:
        try:
            await self._await_messages()
        except Unsupported:
            await self._runtime.clock.sleep(OLDER_ENODE_POLL_S)
        except Exception as error:
            return as_ortoo_error(error, "pop watch")
        return None

    async def _await_messages(self) -> None:
        """Return when the enode may have messages, or when no pop uses this watch any more."""
        enode, request = self.key
        is_retry = False
        while True:
            wait_ms = request.wait_ms if self.error is None else PROBE_MS
            try:
                found = await self._links.to(enode).await_messages(replace(request, wait_ms=wait_ms))
            except OrtooError as error:
                if is_retry or not error.retriable:
                    raise
                is_retry = True  # usually, another replica leads now
                continue
            if found or not self.users:
                return
            is_retry, self.error = False, None


class PopWatches:
    """The watches of a snode. A watch exists while pops use it, or while its enode is quiet."""

    def __init__(self, links: EnodeLinks, runtime: Runtime) -> None:
        self._links = links
        self._runtime = runtime
        self._watches: dict[tuple[str, AwaitRequest], PopWatch] = {}
        self._wheel = DeadlineWheel(runtime.clock, "snode:waiting pops")

    @contextmanager
    def use(self, places: Iterable[tuple[str, AwaitRequest]]) -> Iterator[list[PopWatch]]:
        """The watches of these (enode, request) pairs. At the end, other pops are woken if an enode is not quiet."""
        watches = [self._watch(*place) for place in places]
        for watch in watches:
            watch.users += 1
        try:
            yield watches
        finally:
            self.leave(watches)

    def use_quiet(self, places: Iterable[tuple[str, AwaitRequest]]) -> list[PopWatch] | None:
        """The watches of these pairs until `leave`; None if one is not quiet, or its enode cannot be reached."""
        watches = []
        for place in places:
            watch = self._watches.get(place)
            if watch is None or not watch.is_quiet or watch.error is not None:
                return None
            watches.append(watch)
        for watch in watches:
            watch.users += 1
        return watches

    def shared(self, place: tuple[str, AwaitRequest]) -> tuple[str, AwaitRequest]:
        """The same pair, if possible that of its watch, so that long lists of queues are kept once."""
        watch = self._watches.get(place)
        return place if watch is None else watch.key

    def leave(self, watches: Iterable[PopWatch]) -> None:
        """End the use of watches. Other pops are woken if an enode is not quiet."""
        for watch in watches:
            watch.users -= 1
            if not watch.is_quiet:
                # Two, so that the number of pops doubles while an enode has messages for all of them.
                watch.wake(2)
                watch.drop_if_unused()

    def _watch(self, enode: str, request: AwaitRequest) -> PopWatch:
        watch = self._watches.get((enode, request))
        if watch is None:
            watch = PopWatch(enode, request, self._links, self._runtime, self._drop)
            self._watches[watch.key] = watch
        return watch

    def _drop(self, watch: PopWatch) -> None:
        del self._watches[watch.key]

    async def wait(
        self,
        watches: Sequence[PopWatch],
        until_s: float,
        *,
        events: Sequence[asyncio.Event] = (),
        pop: WaitingPop | None = None,
    ) -> dict[PopWatch, OrtooError]:
        """Wait until a watch is not quiet, an event is set, or until a monotonic time.

        Returns the errors of failed watches. A caller that wakes this pop itself, or that knows of failed watches,
        passes its own `pop`.
        """
        background = self._runtime.background
        pop = pop or WaitingPop(asyncio.get_running_loop().create_future())
        if not all(watch.is_quiet for watch in watches):
            return {}
        self.add(pop, watches, until_s)
        others = [background.start_future("pop change", event.wait()) for event in events]
        for other in others:
            other.add_done_callback(lambda _: pop.wake())
        try:
            await pop.woken
        finally:
            self.remove(pop, watches)
            for other in others:
                other.cancel()
        return pop.failures

    def add(self, pop: WaitingPop, watches: Iterable[PopWatch], until_s: float) -> None:
        """Wake a pop when one of its watches is no longer quiet, or at a monotonic time."""
        for watch in watches:
            watch.add(pop)
        pop.deadline = self._wheel.add(until_s, pop.wake)

    def remove(self, pop: WaitingPop, watches: Iterable[PopWatch]) -> None:
        """Forget a pop that no longer waits."""
        self._wheel.cancel(pop.deadline)
        for watch in watches:
            watch.remove(pop)

    async def close(self) -> None:
        """End the waits for deadlines."""
        await self._wheel.close()
