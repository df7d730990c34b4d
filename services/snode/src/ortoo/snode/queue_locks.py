"""The locks of queues, taken from the enodes that hold them: asked for together, waited for, given back for certain."""

import asyncio
from collections.abc import Sequence

from ortoo.common.background import Background
from ortoo.common.clock import Clock
from ortoo.common.errors import Fenced, OrtooError
from ortoo.common.logs import get_logger
from ortoo.common.randomness import Randomness
from ortoo.common.retry import Backoff
from ortoo.snode.enode_link import LockAnswer, LockKey, LockWish
from ortoo.snode.enode_links import EnodeLinks

ASK_AGAIN_S = 1.0
"""Locks that were refused are asked for again so often, should the news of their freedom get lost."""
WISHES_MAX = 5_000
"""How many locks go into one request."""
_log = get_logger("locks")


class _Lane:
    """What is to be said to one enode: releases first, for a taker may wait for them."""

    def __init__(self) -> None:
        self.takes: dict[LockWish, list[asyncio.Future[LockAnswer]]] = {}
        self.releases: dict[LockWish, None] = {}
        self.working = False


class QueueLocks:
    """Locks for the push sessions of this snode, bound to its incarnation."""

    def __init__(
        self, links: EnodeLinks, background: Background, incarnation: str, *, clock: Clock, randomness: Randomness
    ) -> None:
        self._links = links
        self._background = background
        self._incarnation = incarnation
        self._clock = clock
        self._randomness = randomness
        self._lanes: dict[str, _Lane] = {}
        self._waiting: dict[tuple[str, LockKey], dict[asyncio.Event, None]] = {}
        self.wanted = asyncio.Event()
        """Set while somebody waits for a lock that was refused, or may be."""

    async def hold(self, enode: str, wish: LockWish) -> int:
        """Take a lock, as long as it takes; returns its generation.

        Errors: Fenced when a newer session of the same client has it; Unavailable when the enode is away.
        """
        key = (enode, (wish.group, wish.topic_id, wish.queue_id))
        while True:
            news = asyncio.Event()
            self._waiting.setdefault(key, {})[news] = None
            self.wanted.set()
            try:
                answer = await self._take(enode, wish)
                if answer.generation:
                    return answer.generation
                if answer.error is not None:
                    raise answer.error
                if answer.owner == wish.owner:
                    raise Fenced("a newer session of this client has the queue")
                await news.wait()
            finally:
                events = self._waiting[key]
                events.pop(news, None)
                if not events:
                    del self._waiting[key]

    def give_back(self, enode: str, wish: LockWish) -> None:
        """Free a lock, held or only asked for; tried until the enode has answered."""
        lane = self._lane(enode)
        lane.releases[wish] = None
        self._work(enode, lane)

    def freed(self, enode: str, keys: Sequence[LockKey]) -> None:
        """An enode says which locks are free."""
        for key in keys:
            for event in self._waiting.get((enode, key), ()):
                event.set()

    async def ask_again(self) -> None:
        """Let all who wait ask; to be called every `ASK_AGAIN_S` while a lock is wanted."""
        if self._waiting:
            self.wanted.set()
        for events in self._waiting.values():
            for event in events:
                event.set()

    async def _take(self, enode: str, wish: LockWish) -> LockAnswer:
        lane = self._lane(enode)
        answer: asyncio.Future[LockAnswer] = asyncio.get_running_loop().create_future()
        lane.takes.setdefault(wish, []).append(answer)
        self._work(enode, lane)
        return await answer

    def _lane(self, enode: str) -> _Lane:
        lane = self._lanes.get(enode)
        if lane is None:
            lane = self._lanes[enode] = _Lane()
        return lane

    def _work(self, enode: str, lane: _Lane) -> None:
        if not lane.working:
            lane.working = True
            self._background.spawn(f"locks {enode}", self._drain(enode, lane))

    async def _drain(self, enode: str, lane: _Lane) -> None:
        backoff, attempt = Backoff(first_s=0.05, max_s=1.0), 0
        try:
            while lane.releases or lane.takes:
                ok = await self._release(enode, lane) if lane.releases else True
                if lane.takes:
                    ok = await self._ask(enode, lane) and ok
                attempt = 0 if ok else attempt + 1
                if not ok and lane.releases:
                    await self._clock.sleep(backoff.delay_s(attempt, self._randomness))
        finally:
            lane.working = False

    async def _release(self, enode: str, lane: _Lane) -> bool:
        wishes = list(lane.releases)[:WISHES_MAX]
        try:
            await self._links.to(enode).release_locks(wishes)
        except OrtooError as error:
            if error.retriable:
                return False
            _log.warning("locks cannot be given back; they end by themselves", enode=enode, reason=str(error))
        for wish in wishes:
            lane.releases.pop(wish, None)
        return True

    async def _ask(self, enode: str, lane: _Lane) -> bool:
        wishes = [wish for wish, futures in lane.takes.items() if not all(one.done() for one in futures)][:WISHES_MAX]
        asked = {wish: lane.takes.pop(wish) for wish in wishes}
        if len(asked) < WISHES_MAX:
            lane.takes.clear()  # what is left, nobody waits for any more
        if not asked:
            return True
        try:
            answers = await self._links.to(enode).take_locks(self._incarnation, wishes)
        except OrtooError as error:
            for futures in asked.values():
                for future in futures:
                    if not future.done():
                        future.set_exception(error)
            return False
        for wish, answer in zip(wishes, answers, strict=True):
            for future in asked[wish]:
                if not future.done():
                    future.set_result(answer)
        return True
