"""Joins changes of the directory that are too large for one message and arrive in several."""

from collections.abc import AsyncIterable, AsyncIterator

from ortoo.v1.namesrv_pb2 import WatchRoutesResponse


async def assemble_changes(parts: AsyncIterable[WatchRoutesResponse]) -> AsyncIterator[WatchRoutesResponse]:
    """Join the parts of each change that a watch reports into one message.

    A change whose last part is missing is dropped.
    """
    begun: WatchRoutesResponse | None = None
    async for part in parts:
        if begun is not None:
            begun.MergeFrom(part)
        if part.more:
            begun = begun or part
        else:
            yield begun or part
            begun = None
