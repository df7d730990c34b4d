"""Answers of clients to the server's commands, matched by the nonce of the command."""

import asyncio

from apache.rocketmq.v2.service_pb2 import TelemetryCommand
from ortoo.common.errors import Unavailable
from ortoo.common.randomness import Randomness

WAIT_S = 5.0


class Results:
    """The commands whose answers are waited for."""

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._waiting: dict[str, asyncio.Future[TelemetryCommand]] = {}

    def expect(self) -> str:
        """A nonce for a new command; `wait` must follow."""
        nonce = self._randomness.id_text()
        self._waiting[nonce] = asyncio.get_running_loop().create_future()
        return nonce

    def arrived(self, nonce: str, answer: TelemetryCommand) -> None:
        """An answer came; one that nobody waits for is forgotten."""
        future = self._waiting.get(nonce)
        if future is not None and not future.done():
            future.set_result(answer)

    async def wait(self, nonce: str) -> TelemetryCommand:
        """The answer. Errors: Unavailable when the client does not answer, as some kinds of client never do."""
        try:
            async with asyncio.timeout(WAIT_S):
                return await self._waiting[nonce]
        except TimeoutError:
            raise Unavailable(f"the client did not answer the command within {WAIT_S:.0f} s") from None
        finally:
            del self._waiting[nonce]
