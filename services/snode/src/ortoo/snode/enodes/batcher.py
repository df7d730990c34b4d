"""One request at a time: what arrives while it is in flight goes with the next one."""

from ortoo.common.process.background import Background


class Batcher:
    """Gathers on the way to one place; what gathers, and how it travels, is each kind's own."""

    draining = False
    """Whether a task works on it."""

    async def drain(self) -> None:
        """Send until nothing waits."""
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        """Draining met a defect: answer those who wait."""

    def wake(self, background: Background, name: str) -> None:
        """Have a task drain it, unless one does."""
        if not self.draining:
            self.draining = True
            background.scope(type(self).__name__.lstrip("_"), failed=self.failed).start(name, self._work())

    async def _work(self) -> None:
        try:
            await self.drain()
        finally:
            self.draining = False
