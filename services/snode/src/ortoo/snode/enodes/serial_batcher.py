"""One request at a time: items that arrive while a request is in flight are sent with the next request."""

from ortoo.common.process.background import Background


class SerialBatcher:
    """Collects items for one destination, and sends them in requests one after another. Subclasses define the items."""

    is_draining = False
    """Whether a task is running `drain`."""

    async def drain(self) -> None:
        """Send the pending items until there are none."""
        raise NotImplementedError

    def on_defect(self, error: Exception) -> None:
        """Fail the pending items, because `drain` raised an unexpected error."""

    def wake(self, background: Background, name: str) -> None:
        """Start a task that runs `drain`, unless such a task runs."""
        if not self.is_draining:
            self.is_draining = True
            background.scope(type(self).__name__.lstrip("_"), failed=self.on_defect).start(name, self._run_drain())

    async def _run_drain(self) -> None:
        try:
            await self.drain()
        finally:
            self.is_draining = False
