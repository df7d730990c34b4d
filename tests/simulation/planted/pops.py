"""Planted: lost leases, skipped messages, and lost order."""

import heapq
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ortoo.client.pop import pop_calls
from ortoo.enode.pops import attempts, key_order, parking, settlement
from ortoo.enode.pops import line as pop_line
from ortoo.enode.state.interval_map import Phase
from ortoo.snode.pop import lease_release


def pop_cancelled_by_repeating_it() -> None:
    """G8: a snode sends the pop again and releases the result, and the first request may arrive later."""
    once, ask = lease_release.LeaseReleaser.cancel_once, pop_calls.PopCalls.pop

    class Forgetful:
        """An enode that does not support cancellation."""

        def __init__(self, link: Any) -> None:
            self.settle, self._link = link.settle, link

        async def pop(self, wish: Any) -> Any:
            return await self._link.pop(replace(wish, cancel=False))

    class Links:
        """Links to such enodes."""

        def __init__(self, links: Any) -> None:
            self._links = links

        def to(self, enode: str) -> Any:
            return Forgetful(self._links.to(enode))

    async def again(self: Any, enode: str, request: Any) -> None:
        await once(lease_release.LeaseReleaser(self._runtime, Links(self._links)), enode, request)  # type: ignore[arg-type]

    async def asked(self: Any, request: Any) -> Any:
        request.cancel = False
        return await ask(self, request)

    lease_release.LeaseReleaser.cancel_once = again  # type: ignore[method-assign]
    pop_calls.PopCalls.cancel = asked  # type: ignore[method-assign]


def cancelled_and_kept() -> None:
    """G8: messages of a cancelled pop stay leased without an owner."""

    def kept(self: Any, request: Any, now_s: float) -> Any:
        return []

    attempts.PopAttempts.cancel = kept  # type: ignore[method-assign]


def lease_given_twice() -> None:
    """G8: a leased message is offered to the next consumer too."""
    take = pop_line.PopLine.take

    def generous(self: Any, now_ms: int, limit: int, end_offset: int, **how: Any) -> Any:
        taken = take(self, now_ms, limit, end_offset, **how)
        for first, count, _ in taken.rows:
            if first % 7 == 3:
                self._due.append((now_ms + 50, first, first + count))
                self._due.sort()
        return taken

    def advance(self: Any, now_ms: int) -> None:
        due = self._due
        while due and due[0][0] <= now_ms:
            _, first, end = due.pop(0)
            for piece in list(self.intervals.unfinished(first, end)):
                if piece.state is not None and piece.state.phase is Phase.LEASED:
                    self.leased_count -= piece.end - piece.first
                    self.intervals.set_state(
                        piece.first, piece.end, piece.state._replace(phase=Phase.EXPIRED, until_ms=now_ms)
                    )
                self._make_ready(piece.first, piece.end)

    pop_line.PopLine.take = generous  # type: ignore[method-assign]
    pop_line.PopLine._advance = advance  # type: ignore[method-assign]


def leases_never_end() -> None:
    """G8: leases of a dead consumer never expire."""

    def advance(self: Any, now_ms: int) -> None:
        due = self._due
        while due and due[0][0] <= now_ms:
            until_ms, first, end = heapq.heappop(due)
            for piece in list(self.intervals.unfinished(first, end)):
                if piece.state is not None and piece.state.phase is Phase.RETURNED and piece.state.until_ms == until_ms:
                    self._make_ready(piece.first, piece.end)

    pop_line.PopLine._advance = advance  # type: ignore[method-assign]


def pop_skips_messages() -> None:
    """G2: at some pops, the next message is dropped without being delivered."""
    take = pop_line.PopLine.take

    def skipping(self: Any, now_ms: int, limit: int, end_offset: int, **how: Any) -> Any:
        taken = take(self, now_ms, limit, end_offset, **how)
        at = self._cursor
        if taken.rows and at < end_offset and at % 5 == 0:
            self.drop([(at, 1)])
        return taken

    pop_line.PopLine.take = skipping  # type: ignore[method-assign]


def order_forgotten() -> None:
    """G5: the messages of a message group are all available at once."""
    see = key_order.KeyOrder.add

    def all_free(self: Any, first_offset: int, message_groups: Any, intervals: Any) -> list[int]:
        return see(self, first_offset, [None] * len(message_groups), intervals)

    key_order.KeyOrder.add = all_free  # type: ignore[method-assign]


def acknowledged_in_memory_only() -> None:
    """G8: an acknowledgement is answered and never written."""

    async def write(self: Any, group: Any, changes: Any) -> None:
        """Report success."""

    settlement.LeaseSettlement._write = write  # type: ignore[method-assign]


def attempts_not_counted() -> None:
    """G9: a message that always fails is always delivered."""
    give_back = pop_line.PopLine.redeliver

    def uncounted(self: Any, ranges: Iterable[Any], number: int, now_ms: int, delay_ms: int, **_: Any) -> Any:
        return give_back(self, ranges, number, now_ms, delay_ms, counts=False)

    pop_line.PopLine.redeliver = uncounted  # type: ignore[method-assign]


def parked_without_an_end() -> None:
    """G9: a dead letter is written, and the group keeps its message."""
    park = parking.Parker.park

    async def twice(self: Any, line: Any, letters: Any, rules: Any) -> None:
        drop, line.drop = line.drop, lambda ranges: None
        try:
            await park(self, line, letters[:1], rules)
        finally:
            line.drop = drop
        await park(self, line, letters, rules)

    parking.Parker.park = twice  # type: ignore[method-assign]
