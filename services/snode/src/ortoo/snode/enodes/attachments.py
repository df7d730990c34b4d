"""Keeps this snode attached to every enode: its locks live as long, and the news of free locks comes this way."""

import functools
from dataclasses import dataclass, field

from ortoo.common.errors import OrtooError
from ortoo.common.process.logs import get_logger
from ortoo.common.process.retry import Backoff
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.enodes.pool import EnodeLinks
from ortoo.snode.enodes.queue_locks import QueueLocks
from ortoo.snode.runtime import Runtime

_log = get_logger("attachments")


@dataclass(slots=True, eq=False)
class Attachments:
    """One call to each enode that the directory knows."""

    runtime: Runtime
    directory: Directory
    links: EnodeLinks
    locks: QueueLocks
    _attached: set[str] = field(default_factory=set, init=False)

    async def look(self) -> None:
        """Attach to enodes that are new; to be called about once a second."""
        for entry in self.directory.enodes():
            if entry.name not in self._attached:
                self._attached.add(entry.name)
                self.runtime.background.spawn(f"attach {entry.name}", self._stay(entry.name))

    async def _stay(self, enode: str) -> None:
        clock, backoff, attempt = self.runtime.clock, Backoff(first_s=0.05, max_s=0.5), 0
        while True:
            began_s = clock.monotonic_s()
            try:
                freed = functools.partial(self.locks.freed, enode)
                await self.links.to(enode).attach(self.runtime.settings.name, self.runtime.incarnation, freed)
            except OrtooError as error:
                if attempt == 0:
                    _log.info("not attached to an enode; trying on", enode=enode, reason=str(error))
            attempt = 0 if clock.monotonic_s() - began_s > 1.0 else attempt + 1
            await clock.sleep(backoff.delay_s(attempt, self.runtime.randomness))
