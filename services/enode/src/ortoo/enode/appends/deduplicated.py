"""Deduplication by ids that applications choose: each message is stored once within the window."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ortoo.common.errors import Invalid, Overloaded, Unavailable
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.records.batch import encode, open_batch
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.appends.router import AppendRouter
from ortoo.enode.changes.kinds import IdsRemembered, StateChange
from ortoo.enode.log.settings import FlushMode
from ortoo.enode.state.tables.message_ids import short_id
from ortoo.enode.store.store import Store

IDS_MAX = 500_000
"""The number of ids that an enode remembers, in all topics together."""
ID_BYTES_MAX = 255


@dataclass(frozen=True, slots=True)
class DeduplicatedPlace:
    """The place of a stored message that has a dedup id."""

    queue_id: int
    offset: int
    """The offset in the queue; of a delayed message its timer id."""
    stored_at_ms: int
    duplicate: bool = False
    """Whether it was stored by an earlier request."""


class DeduplicatedAppends:
    """Stores only messages whose dedup ids are not remembered and are not being stored by another request."""

    def __init__(
        self, store: Store, appends: AppendRouter, background: Background, clock: Clock, *, window_ms: int
    ) -> None:
        """Remember ids for `window_ms` milliseconds; 0 = no deduplication."""
        self._ids = store.engine.state.ids
        self._appends = appends
        self._background = background
        self._clock = clock
        self.window_ms = window_ms
        self._in_flight: dict[tuple[int, bytes], asyncio.Future[DeduplicatedPlace]] = {}

    async def append(
        self, topic_id: int, queue_id: int, batch: SealedBatch, ids: Sequence[str]
    ) -> list[DeduplicatedPlace]:
        """Store the new messages of a batch; returns the place of each message when all are durable.

        Errors: Invalid (ids), Overloaded (too many ids are remembered), and those of `AppendRouter.append`. After these
        errors, no message is stored. Unavailable when a concurrent request for some of the messages failed.
        A repeated request after an ambiguous outcome gets the places of the stored messages.
        """
        if len(ids) != batch.count or not all(1 <= len(one.encode()) <= ID_BYTES_MAX for one in ids):
            raise Invalid(f"give each message an id of 1 to {ID_BYTES_MAX} bytes", field="ids")
        return await self._background.run_shielded("identified", self._append(topic_id, queue_id, batch, ids))

    async def _append(
        self, topic_id: int, queue_id: int, batch: SealedBatch, ids: Sequence[str]
    ) -> list[DeduplicatedPlace]:
        now_ms, loop = self._clock.now_ms(), asyncio.get_running_loop()
        places: list[asyncio.Future[DeduplicatedPlace]] = []
        new: dict[bytes, int] = {}
        for row, key in enumerate(map(short_id, ids)):
            place = self._in_flight.get((topic_id, key))
            if place is None:
                place = loop.create_future()
                if (known := self._ids.of(topic_id, key, now_ms)) is not None:
                    place.set_result(
                        DeduplicatedPlace(known.queue_id, known.offset, known.stored_at_ms, duplicate=True)
                    )
                else:
                    new[key], self._in_flight[topic_id, key] = row, place
            places.append(place)
        if new:
            try:
                first_offset, stored_at_ms = await self._store_new(topic_id, queue_id, batch, new, now_ms)
            except BaseException as error:
                for key, row in new.items():
                    del self._in_flight[topic_id, key]
                    places[row].set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
                    places[row].exception()
                raise
            for number, (key, row) in enumerate(new.items()):
                del self._in_flight[topic_id, key]
                places[row].set_result(DeduplicatedPlace(queue_id, first_offset + number, stored_at_ms))
        own = set(new.values())
        return [await self._wait_for_place(place, is_own=row in own) for row, place in enumerate(places)]

    async def _wait_for_place(self, place: asyncio.Future[DeduplicatedPlace], *, is_own: bool) -> DeduplicatedPlace:
        try:
            settled = place.result() if place.done() else await asyncio.shield(place)
        except Exception as error:  # the new messages are stored, so the error must not claim that none is
            raise Unavailable(f"another request for the same message failed: {error}; send it again") from None
        return settled if is_own or settled.duplicate else replace(settled, duplicate=True)

    async def _store_new(
        self, topic_id: int, queue_id: int, batch: SealedBatch, new: dict[bytes, int], now_ms: int
    ) -> tuple[int, int]:
        """Store the messages at the rows in `new`; returns the first new offset and the store time."""
        if len(self._ids) + len(new) > IDS_MAX:
            raise Overloaded(
                f"this enode remembers {len(self._ids)} ids of messages, which is the limit; send again later, or make "
                "the window shorter (dedup_window_ms)",
                retry_after_ms=1_000,
            )
        if len(new) < batch.count:
            batch = encode(open_batch(batch).messages(new.values()), now_ms=now_ms)
        keys, delayed, window_ms = tuple(new), batch.delayed, self.window_ms

        def remembered(first_offset: int, stored_at_ms: int) -> tuple[StateChange, ...]:
            if not window_ms:
                return ()
            until_ms = stored_at_ms + window_ms
            return (IdsRemembered(topic_id, queue_id, first_offset, delayed, stored_at_ms, until_ms, keys),)

        appended = await self._appends.append(
            topic_id, queue_id, batch, flush_mode=FlushMode.SYNC, consumes_at=remembered
        )
        return appended.first_offset, appended.stored_at_ms
