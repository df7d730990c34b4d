"""The life cycle of the client's objects, for programs in which it does not fit into one block."""

import asyncio
from collections.abc import Generator
from typing import Any, Self

CLOSE_TIMEOUT_S = 30.0


class Openable:
    """Enter it with `async with`. Without a block, await it or call `open`, and call `close` at the end.

    The end of a client closes everything that was opened through it.
    """

    _connection: Any

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(self, *ended: Any) -> bool | None:
        raise NotImplementedError

    def __await__(self) -> Generator[Any, None, Self]:
        """The same as `open`: `mq = await connect()`."""
        return self.open().__await__()

    async def open(self) -> Self:
        """Open it, and return it; call `close` at the end. Errors: as at the begin of an `async with` block."""
        # A background task that fails cancels the task that has entered the object, so this is a task of its own.
        entering = asyncio.get_running_loop().create_task(self.__aenter__())
        try:
            await entering
        except asyncio.CancelledError:
            if not entering.cancelled() and entering.exception() is None:
                await self.__aexit__(None, None, None)
            raise
        self._opened_objects[self] = None
        return self

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Close it gracefully, as the end of an `async with` block does. Does nothing if `open` has not opened it.

        Errors: TimeoutError after `timeout_s`; it is closed then, too. Otherwise as at the end of a block.
        """
        if self._opened_objects.pop(self, self) is self:
            return
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                await self.__aexit__(None, None, None)
        except TimeoutError as error:
            if not limit.expired():
                raise
            what = type(self).__name__
            raise TimeoutError(f"the {what} did not close gracefully within {timeout_s:g} s and was ended") from error

    @property
    def _opened_objects(self) -> "dict[Openable, None]":
        """The objects that were opened by `open`, the oldest first."""
        opened: dict[Openable, None] = self._connection.opened
        return opened
