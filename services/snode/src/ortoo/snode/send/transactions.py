"""Transactions across the enodes: begin, end, list, and checks of open ones at the producers of this snode."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.groups.handle import Handle, HandleKind, read_handle
from ortoo.common.groups.queue_choice import queue_of_group
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.containment import record_contained
from ortoo.common.process.retry import Backoff
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.snode import log_events
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.directory import resolve_write_queues
from ortoo.snode.cluster.routes import EnodeEntry, Queue, Topic
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import DueHalf, EnodeLinks, HalfVerdict, OpenHalf, VerdictSource
from ortoo.snode.topics.creation import ProducerTopics

LIST_DEFAULT = 100
LIST_MAX = 10_000
_log = get_logger("transactions")


@dataclass(frozen=True, slots=True)
class StartedTransaction:
    """A new transaction."""

    transaction_id: str
    message_ids: tuple[str, ...]
    queue: Queue


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """One open transaction, with the data for operators."""

    transaction_id: str
    queue: Queue
    half: OpenHalf


@dataclass(frozen=True, slots=True)
class TransactionCheckCall:
    """A check: asks a producer for the verdict on a transaction."""

    transaction_id: str
    topic: str
    half: OpenHalf
    batch: SealedBatch


CheckSender = Callable[[TransactionCheckCall], bool]
"""Sends a check to a producer; False if that producer may not see the messages."""


@dataclass(slots=True, eq=False)
class TransactionProcessor:
    """Begins, ends, lists and checks transactions."""

    runtime: Runtime
    cluster: ClusterView
    producer_topics: ProducerTopics
    links: EnodeLinks
    _producers: dict[str, dict[CheckSender, None]] = field(default_factory=dict, init=False)
    """By group: the connected producers. The first one gets the next check."""
    _calls: dict[str, asyncio.Task[None] | None] = field(default_factory=dict, init=False)
    _has_producers: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def begin(
        self,
        topic_name: str,
        messages: Sequence[Message],
        producer_group: str,
        *,
        check_after_ms: int = 0,
        queue: Queue | None = None,
        key: int = 0,
    ) -> StartedTransaction:
        """Store messages in one queue; they stay invisible until `end` commits them.

        A repeated `key` (not 0) with the same queue returns the same transaction. Errors: NotFound, Invalid (nothing is
        stored), Overloaded, Unavailable.
        """
        topic = await self.producer_topics.topic(topic_name)
        check_group_name(producer_group, "producer_group")
        if not messages:
            raise Invalid("no messages; give at least one", field="messages")
        for row, message in enumerate(messages):
            message.check(f"messages[{row}]")
            if message.deliver_at_ms is not None:
                raise Invalid(
                    "a message of a transaction cannot be delayed as well", field=f"messages[{row}].deliver_at_ms"
                )
        to = self._choose_queue(topic, messages[0], queue)
        named = [
            one if one.message_id is not None else one.replace(message_id=self.runtime.randomness.id_text())
            for one in messages
        ]
        batch = encode(named, now_ms=self.runtime.clock.now_ms())
        number = await self.links.to(to.enode).store_half(
            topic.topic_id,
            to.queue_id,
            batch,
            producer_group,
            check_after_ms,
            key or self.runtime.randomness.id64(),  # with a key, the request is repeated while no leader answers
        )
        ids = tuple(message.message_id or "" for message in named)
        return StartedTransaction(self._transaction_id(to, topic.topic_id, number), ids, to)

    async def end(self, transaction_id: str, verdict: HalfVerdict, source: VerdictSource) -> None:
        """Commit or roll back a transaction; the first verdict is final.

        Errors: Invalid, NotFound, Conflict, Unavailable.
        """
        handle = read_handle(transaction_id, HandleKind.TRANSACTION, "transaction_id", self.cluster.directory.seals)
        await self.links.to(handle.enode).settle_half(handle.topic_id, handle.number, verdict, source)

    async def resume(self, transaction_id: str) -> None:
        """Resume the checks of a parked transaction.

        Errors: Invalid, NotFound, Conflict if the transaction is not parked.
        """
        handle = read_handle(transaction_id, HandleKind.TRANSACTION, "transaction_id", self.cluster.directory.seals)
        await self.links.to(handle.enode).resume_half(handle.topic_id, handle.number)

    async def list_open(
        self, *, topic_name: str = "", producer_group: str = "", parked_only: bool = False, limit: int = 0
    ) -> list[OpenTransaction]:
        """The open transactions, the oldest first. Those on unreachable enodes are left out."""
        if not 0 <= limit <= LIST_MAX:
            raise Invalid(f"{limit}; at most {LIST_MAX}", field="limit")
        limit = limit or LIST_DEFAULT
        topic_id = (await self.cluster.watch.topic(topic_name)).topic_id if topic_name else 0
        answers = await self.links.ask_all(
            [entry.name for entry in self.cluster.directory.enodes()],
            lambda link: link.list_halves(topic_id, producer_group, parked_only=parked_only, limit=limit),
        )
        names = await self.cluster.watch.topic_names(one.topic_id for halves in answers.values() for one in halves)
        found: list[OpenTransaction] = []
        for enode, halves in answers.items():
            for half in halves:
                queue = Queue(names.get(half.topic_id, ""), enode, half.queue_id)
                found.append(OpenTransaction(self._transaction_id(queue, half.topic_id, half.number), queue, half))
        return sorted(found, key=lambda one: (one.half.stored_at_ms, one.transaction_id))[:limit]

    def add_producer(self, producer_group: str, send_check: CheckSender) -> None:
        """Register a producer of a group, which then receives checks by `send_check`."""
        producers = self._producers.setdefault(producer_group, {})
        producers[send_check] = None
        if len(producers) == 1:
            self._on_groups_changed()

    def remove_producer(self, producer_group: str, send_check: CheckSender) -> None:
        """Remove a producer that has disconnected."""
        producers = self._producers[producer_group]
        del producers[send_check]
        if not producers:
            del self._producers[producer_group]
            self._on_groups_changed()

    async def follow_new_enodes(self, changed: Iterable[EnodeEntry]) -> None:
        """Start to receive the checks of those of these enodes that are new."""
        for entry in changed:
            if entry.name not in self._calls:
                self._calls[entry.name] = None
                self.runtime.background.run_contained("checks", self._listen(entry.name))

    def _choose_queue(self, topic: Topic, message: Message, queue: Queue | None) -> Queue:
        queues = resolve_write_queues(topic, queue)
        if queue is not None:
            return queues[0]
        if message.message_group:
            return queue_of_group(message.message_group, queues)
        alive = self.cluster.directory.available_queues(queues) or queues
        return alive[self.runtime.randomness.below(len(alive))]

    def _transaction_id(self, queue: Queue, topic_id: int, number: int) -> str:
        """The id of a transaction for clients."""
        handle = Handle(HandleKind.TRANSACTION, queue.enode, topic_id, queue.queue_id, number, 0)
        return handle.encoded(self.cluster.directory.seals)

    def _on_groups_changed(self) -> None:
        if self._producers:
            self._has_producers.set()
        else:
            self._has_producers.clear()
        for call in self._calls.values():
            if call is not None:
                call.cancel()

    async def _listen(self, enode: str) -> None:
        """Register at an enode the groups that have a producer here, and receive their checks."""
        backoff, attempt = Backoff(first_s=0.05, max_s=1.0), 0
        while True:
            await self._has_producers.wait()
            began_s = self.runtime.clock.monotonic_s()
            call = self._calls[enode] = self.runtime.background.run_contained(
                "checks", self._watch_checks(enode, sorted(self._producers))
            )
            await asyncio.wait([call])
            self._calls[enode] = None
            if not call.cancelled():
                attempt = 0 if self.runtime.clock.monotonic_s() - began_s > 1.0 else attempt + 1
                await self.runtime.clock.sleep(backoff.delay_s(attempt, self.runtime.randomness))

    async def _watch_checks(self, enode: str, groups: Sequence[str]) -> None:
        try:
            await self.links.to(enode).watch_halves(groups, lambda due: self._send_check(enode, due))
        except OrtooError as error:
            _log.emit(log_events.TRANSACTION_WATCH_FAILED_RETRYING, enode=enode, reason=str(error))

    def _send_check(self, enode: str, due: DueHalf) -> None:
        producers = self._producers.get(due.half.producer_group)
        if not producers:
            return
        name = self.cluster.directory.topic_name(due.half.topic_id)
        if not name:  # a lite topic that this snode has not used; the enode checks again
            names = self.cluster.watch.topic_names([due.half.topic_id])
            self.runtime.background.run_contained("topic of a transaction", names)
            return
        queue = Queue(name, enode, due.half.queue_id)
        check = TransactionCheckCall(
            self._transaction_id(queue, due.half.topic_id, due.half.number),
            queue.topic,
            due.half,
            due.batch,
        )
        for _ in range(len(producers)):
            ask = next(iter(producers))
            producers[ask] = producers.pop(ask)  # producers take turns
            try:
                if ask(check):
                    return
            except OrtooError as error:  # it does not listen; the next check goes to another one
                record_contained("transaction checks", error)
                return
