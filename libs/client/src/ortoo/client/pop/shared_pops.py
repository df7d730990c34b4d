"""Pops that the workers of one consumer ask for at the same time travel together, while there is much to do."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ortoo.client.pop.popped import PopLease
from ortoo.common.errors import Unavailable
from ortoo.common.process.background import Background

UNDER_WAY_MAX = 2
"""So many shared pops are under way at once; what is asked for meanwhile waits for the next."""
MESSAGES_MAX = 1_024
"""So many messages one pop may bring."""


@dataclass(eq=False, slots=True)
class _Wish:
    """What one worker asked for."""

    count: int
    done: "asyncio.Future[list[PopLease]]"


class SharedPops:
    """Shares answers out among workers. A shared pop does not wait for messages, so nobody waits behind it for long."""

    def __init__(
        self,
        ask: Callable[[int], Awaitable[list[PopLease]]],
        give_back: Callable[[Iterable[PopLease]], Coroutine[Any, Any, None]],
        background: Background,
    ) -> None:
        """`ask` pops so many messages without waiting; `give_back` returns what nobody wants any more."""
        self._ask = ask
        self._give_back = give_back
        self._background = background
        self._wishes: deque[_Wish] = deque()
        self._open: set[_Wish] = set()
        self._under_way = 0
        self._is_planned = False

    async def take(self, count: int) -> list[PopLease]:
        """Up to `count` messages, none if there are none now. Errors: as the server says."""
        loop = asyncio.get_running_loop()
        wish = _Wish(count, loop.create_future())
        self._wishes.append(wish)
        self._open.add(wish)
        if not self._is_planned and self._under_way < UNDER_WAY_MAX:
            self._is_planned = True
            loop.call_soon(self._send)  # whoever asks in the same turn joins
        try:
            return await wish.done
        except asyncio.CancelledError:
            if wish.done.done() and not wish.done.cancelled() and wish.done.exception() is None:
                self._background.spawn("give back", self._give_back(wish.done.result()))
            raise
        finally:
            self._open.discard(wish)

    def close(self) -> None:
        """Whoever waits hears that the consumer was left."""
        for wish in self._open:
            if not wish.done.done():
                wish.done.set_exception(Unavailable("the consumer was left"))
        self._wishes.clear()

    def _send(self) -> None:
        self._is_planned = False
        while self._wishes and self._under_way < UNDER_WAY_MAX:
            together = [self._wishes.popleft()]
            total = together[0].count
            while self._wishes and total + self._wishes[0].count <= MESSAGES_MAX:
                total += self._wishes[0].count
                together.append(self._wishes.popleft())
            self._under_way += 1
            self._background.spawn("pop", self._pop(together, total))

    async def _pop(self, together: Sequence[_Wish], total: int) -> None:
        try:
            leases = deque(await self._ask(total))
        except Exception as error:
            for wish in together:
                if not wish.done.done():
                    wish.done.set_exception(error)
            return
        finally:
            self._under_way -= 1
            self._send()
        for wish in together:
            if not wish.done.done():
                wish.done.set_result(_share(leases, wish.count))
        if leases:
            await self._give_back(leases)


def _share(leases: deque[PopLease], count: int) -> list[PopLease]:
    """Take up to `count` messages off the front."""
    share: list[PopLease] = []
    while leases and count:
        first = leases.popleft()
        if len(first) > count:
            first, rest = first.split(count)
            leases.appendleft(rest)
        share.append(first)
        count -= len(first)
    return share
