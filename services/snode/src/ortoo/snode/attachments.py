"""Keeps this snode attached to every enode: its locks live as long, and the news of free locks comes this way."""

import functools

from ortoo.common.background import Background
from ortoo.common.clock import Clock
from ortoo.common.errors import OrtooError
from ortoo.common.logs import get_logger
from ortoo.common.randomness import Randomness
from ortoo.common.retry import Backoff
from ortoo.snode.directory import Directory
from ortoo.snode.enode_links import EnodeLinks
from ortoo.snode.queue_locks import QueueLocks

_log = get_logger("attachments")


class Attachments:
    """One call to each enode that the directory knows."""

    def __init__(
        self,
        directory: Directory,
        links: EnodeLinks,
        locks: QueueLocks,
        background: Background,
        *,
        snode: str,
        incarnation: str,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        self._directory = directory
        self._links = links
        self._locks = locks
        self._background = background
        self._snode = snode
        self._incarnation = incarnation
        self._clock = clock
        self._randomness = randomness
        self._attached: set[str] = set()

    async def look(self) -> None:
        """Attach to enodes that are new; to be called whenever the directory has changed."""
        for entry in self._directory.enodes():
            if entry.name not in self._attached:
                self._attached.add(entry.name)
                self._background.spawn(f"attach {entry.name}", self._stay(entry.name))

    async def _stay(self, enode: str) -> None:
        backoff, attempt = Backoff(first_s=0.05, max_s=0.5), 0
        while True:
            began_s = self._clock.monotonic_s()
            try:
                freed = functools.partial(self._locks.freed, enode)
                await self._links.to(enode).attach(self._snode, self._incarnation, freed)
            except OrtooError as error:
                if attempt == 0:
                    _log.info("not attached to an enode; trying on", enode=enode, reason=str(error))
            attempt = 0 if self._clock.monotonic_s() - began_s > 1.0 else attempt + 1
            await self._clock.sleep(backoff.delay_s(attempt, self._randomness))
