"""News of the directory, joined: what is too large for one message comes in several."""

from collections.abc import AsyncIterable, AsyncIterator

from ortoo.v1.namesrv_pb2 import WatchRoutesResponse


async def whole_news(parts: AsyncIterable[WatchRoutesResponse]) -> AsyncIterator[WatchRoutesResponse]:
    """What a watch says, each thing as one message, however large. What breaks off in the middle was not said."""
    begun: WatchRoutesResponse | None = None
    async for part in parts:
        if begun is not None:
            begun.MergeFrom(part)
        if part.more:
            begun = begun or part
        else:
            yield begun or part
            begun = None
