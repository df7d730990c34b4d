"""Acknowledgements that meet on their way travel together: one request at a time for each enode."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ortoo.common.errors import Unavailable
from ortoo.common.process.background import Background

RECEIPTS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Messages of one lease."""

    receipt_handle: str
    offsets: Sequence[int]
    done: "asyncio.Future[list[int]]"


class SharedAcks:
    """The acknowledgements of one consumer. An enode that is away holds up only its own."""

    def __init__(
        self, send: Callable[[Sequence[tuple[str, Sequence[int]]]], Awaitable[set[tuple[str, int]]]],
        background: Background,
    ) -> None:  # fmt: skip
        """`send` acknowledges (receipt handle, offsets) and returns those (handle, offset) that are stale."""
        self._send = send
        self._background = background
        self._lanes: dict[str, list[_Waiting]] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    async def ack(self, enode: str, receipt_handle: str, offsets: Sequence[int]) -> list[int]:
        """Acknowledge messages on an enode. Returns the stale offsets. Errors: as the server says."""
        waiting = _Waiting(receipt_handle, offsets, asyncio.get_running_loop().create_future())
        lane = self._lanes.get(enode)
        if lane is None:
            lane = self._lanes[enode] = []
            self._idle.clear()
            self._background.spawn("ack", self._run(enode, lane))
        lane.append(waiting)
        return await waiting.done

    async def settled(self) -> None:
        """Wait until no acknowledgement is on its way."""
        await self._idle.wait()

    async def _run(self, enode: str, lane: list[_Waiting]) -> None:
        """Send what waits. A worker that is called off takes no other's answer along."""
        try:
            while lane:
                together = lane[:RECEIPTS_MAX]
                await self._send_together(together)
                del lane[: len(together)]
        finally:
            del self._lanes[enode]
            if not self._lanes:
                self._idle.set()
            _fail(lane, Unavailable("the consumer was left; whether this is acknowledged is unknown"))

    async def _send_together(self, together: Sequence[_Waiting]) -> None:
        by_handle: dict[str, list[int]] = {}
        for one in together:
            by_handle.setdefault(one.receipt_handle, []).extend(one.offsets)
        try:
            stale = await self._send(list(by_handle.items()))
        except Exception as error:
            _fail(together, error)
            return
        for one in together:
            if not one.done.done():
                one.done.set_result([offset for offset in one.offsets if (one.receipt_handle, offset) in stale])


def _fail(waiting: Sequence[_Waiting], error: Exception) -> None:
    for one in waiting:
        if not one.done.done():
            one.done.set_exception(error)
            one.done.exception()  # whoever asked may have gone
