"""What pops got and nobody looked at goes back: at once, and as the same attempt."""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from ortoo.common.errors import OrtooError
from ortoo.common.groups.pop import GiveBack, LeasePart, Popped, PoppedBatch, PopWish, runs
from ortoo.common.process.retry import Backoff
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks

OWED_MAX_S = 60.0
"""So long an enode that is away is told what goes back; by then most leases are over."""
OWED_MAX = 1_000
"""So much an enode that is away is to be told, the newest."""
Word = Callable[[], Awaitable[object]]


class GivingBack:
    """Gives messages back to the enodes that leased them.

    An enode that is away is told when it is back: it may have stopped in good order, and then it knows its leases.
    """

    def __init__(self, runtime: Runtime, links: EnodeLinks) -> None:
        self._runtime = runtime
        self._links = links
        self._owed: dict[str, deque[tuple[float, Word]]] = {}
        """To each enode that is away: until when to tell it what."""

    async def release(self, enode: str, topic_id: int, group: str, batches: Iterable[PoppedBatch]) -> None:
        """Give messages back."""
        if parts := [LeasePart(one.queue_id, one.number, runs(one.offsets)) for one in batches]:
            verdict = GiveBack(counts=False)
            await self._tell(enode, lambda: self._links.to(enode).settle(topic_id, group, parts, verdict), OWED_MAX_S)

    async def call_off(self, enode: str, wish: PopWish, asked: Awaitable[Popped] | None = None) -> None:
        """Nobody waits for a pop any more; what it still brings goes back.

        `asked` is the pop itself while it is under way. It is awaited rather than broken off: an enode that stops
        answers what it was asked, hears of nothing else, and remembers of its pops only the leases.
        """
        is_outstanding = False
        try:
            await self.call_off_once(enode, wish)
        except OrtooError as error:
            if not error.retriable:
                return  # the topic has gone: nothing is left to give back
            is_outstanding = True
        if asked is not None:
            try:
                await self.release(enode, wish.topic_id, wish.group, (await asked).batches)
                return
            except OrtooError as error:
                if not error.retriable:
                    return
                # Whether it has leased anything is not known.
        if is_outstanding:
            self._owe(enode, lambda: self.call_off_once(enode, wish), min(wish.invisible_ms / 1000, OWED_MAX_S))

    async def call_off_once(self, enode: str, wish: PopWish) -> None:
        """Call off a pop, or with an empty request id all of its attempt. Errors: NotFound, Unavailable."""
        wish = replace(wish, messages_max=1, wait_ms=0, call_off=True)
        popped = await self._links.to(enode).pop(wish)
        # An enode that does not know how to call off has popped instead; what it found is what is to go back.
        await self.release(enode, wish.topic_id, wish.group, popped.batches)

    async def _tell(self, enode: str, word: Word, for_s: float) -> None:
        try:
            await word()
        except OrtooError as error:
            if error.retriable:  # otherwise what it is about has gone
                self._owe(enode, word, for_s)

    def _owe(self, enode: str, word: Word, for_s: float) -> None:
        owed = self._owed.get(enode)
        if owed is None:
            owed = self._owed[enode] = deque(maxlen=OWED_MAX)
            self._runtime.background.contained("owed", self._pay(enode, owed))
        owed.append((self._runtime.clock.monotonic_s() + for_s, word))

    async def _pay(self, enode: str, owed: deque[tuple[float, Word]]) -> None:
        """Say one word after another; while the enode is away, the same one again."""
        clock, backoff, failures = self._runtime.clock, Backoff(first_s=0.05, max_s=2.0), 0
        try:
            while True:
                await clock.sleep(backoff.delay_s(failures, self._runtime.randomness) if failures else 0.0)
                if not owed:
                    return
                until_s, word = first = owed[0]
                try:
                    await word()
                    failures = 0
                except OrtooError as error:
                    failures = failures + 1 if error.retriable else 0
                    if error.retriable and clock.monotonic_s() < until_s:
                        continue
                if owed and owed[0] is first:  # more words may have driven it out
                    owed.popleft()
        finally:
            del self._owed[enode]
