"""The calls over which a snode hears of an enode for long: of free locks while it is there for it, and of halves."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from ortoo.common.errors import Unavailable
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.grpc.fields import read
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.snode.enodes.link import DueHalf, LockKey, OpenHalf

ATTACH_INTERVAL_S = 5.0
"""How often an enode hears that this snode is there."""


async def stay_attached(
    call: Any, peer: str, sign: object, freed: Callable[[Sequence[LockKey]], None], clock: Clock
) -> None:
    """Send `sign` over an open Attach call, and tell which locks are free, until the connection breaks.

    Errors: Unavailable.
    """

    async def signs() -> None:
        while not call.done():
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # whoever reads hears why
                await call.write(sign)
            await clock.sleep(ATTACH_INTERVAL_S)

    # Given an iterator of requests, grpc.aio would go on with it for a while after the call is over.
    async with Background("attach") as background:
        background.spawn("signs", signs())
        try:
            with rpc_errors(peer, within=True):
                async for news in call:
                    if news.freed:
                        freed([(one.group, one.topic_id, one.queue_id) for one in news.freed])
        finally:
            call.cancel()


async def hear_halves(call: Any, peer: str, heard: Callable[[DueHalf], None]) -> None:
    """Tell of each transaction that is due, over an open WatchHalves call. Errors: Unavailable, also when it ends."""
    try:
        with rpc_errors(peer, within=True):
            async for answer in call:
                heard(DueHalf(read(OpenHalf, answer.half), batch_of(answer.batch)))
        raise Unavailable(f"{peer} ended the call")
    finally:
        call.cancel()
