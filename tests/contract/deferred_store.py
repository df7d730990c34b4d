"""A store in memory with delayed messages and transactions at work, which can lose its power at any moment."""

from dataclasses import dataclass, field

from ortoo.common.background import Background
from ortoo.common.record_batch import open_batch
from ortoo.common.system_topics import DELAYED_TOPIC_ID, HALF_TOPIC_ID
from ortoo.enode.deferred.delays import Delays
from ortoo.enode.deferred.moves import TimerMoves
from ortoo.enode.deferred.transactions import Transactions
from ortoo.enode.state.check_schedule import CheckSchedule
from ortoo.enode.store import Store
from tests.contract.one_store import QUEUES, TOPIC, OneStore


@dataclass(slots=True)
class DeferredStore(OneStore):
    """An open store and what works on it."""

    delays: Delays = field(init=False)
    transactions: Transactions = field(init=False)
    _background: Background | None = None

    async def open(self) -> Store:
        """Open it and start everything; what ran on the store before is gone with its process."""
        await self.halt()
        store = await OneStore.open(self)
        self._background = background = await Background("deferred").__aenter__()
        self.delays = Delays(store, background, clock=self.clock)
        self.transactions = Transactions(store, background, CheckSchedule(1_000, 1_000, 3), clock=self.clock)
        store.before_retention(DELAYED_TOPIC_ID, TimerMoves(store, clock=self.clock).rescue)
        store.before_retention(HALF_TOPIC_ID, self.transactions.rescue)
        background.spawn("delays", self.delays.run())
        background.spawn("transactions", self.transactions.run())
        return store

    async def halt(self) -> None:
        """Stop what works on the store, as it is."""
        background, self._background = self._background, None
        if background is not None:
            await background.__aexit__(None, None, None)

    async def visible(self) -> list[tuple[bytes, int]]:
        """Bodies in all queues, each with the time it was stored."""
        found = []
        for queue_id in range(QUEUES):
            offset = self.store.describe_queues(TOPIC)[queue_id].begin_offset
            while (fetched := await self.store.fetch(TOPIC, queue_id, offset)).batches:
                found += [(it, one.stored_at_ms) for one in fetched.batches for it in open_batch(one.batch).bodies()]
                offset = fetched.next_offset
        return found
