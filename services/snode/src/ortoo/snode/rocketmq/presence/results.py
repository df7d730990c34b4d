"""Answers of clients to the server's commands, matched by the nonce of the command."""

import asyncio
from collections.abc import Callable

from apache.rocketmq.v2.service_pb2 import TelemetryCommand
from ortoo.common.errors import Unavailable
from ortoo.common.process.randomness import Randomness


class Results:
    """The commands whose answers are waited for."""

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._waiting: dict[str, asyncio.Future[TelemetryCommand]] = {}

    def nonce(self) -> str:
        """A new number for a command."""
        return self._randomness.id_text()

    async def ask(self, say: Callable[[str], None], timeout_s: float) -> TelemetryCommand:
        """Say a command with a new nonce; its answer.

        Errors: those of `say`; Unavailable when the client does not answer, as some kinds of client never do.
        """
        nonce = self.nonce()
        answer: asyncio.Future[TelemetryCommand] = asyncio.get_running_loop().create_future()
        self._waiting[nonce] = answer
        try:
            say(nonce)
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise Unavailable(
                f"the client did not answer the command within {timeout_s:g} s; some kinds of client never do"
            ) from None
        finally:
            del self._waiting[nonce]

    def arrived(self, nonce: str, answer: TelemetryCommand) -> None:
        """An answer came; one that nobody waits for is forgotten."""
        future = self._waiting.get(nonce)
        if future is not None and not future.done():
            future.set_result(answer)
