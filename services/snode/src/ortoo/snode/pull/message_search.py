"""Searches for single messages, by key or by id, on all enodes of a topic."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ortoo.common.errors import DataLoss, Invalid, NotFound, OrtooError, OutOfRange, Unavailable
from ortoo.common.records.batch import open_batch
from ortoo.common.records.message_id import message_address
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import EnodeLinks, FetchBatchesRequest
from ortoo.snode.pull.queue_reader import PlacedMessage, message_id_of
from ortoo.snode.pull.read_sizes import count_fitting

LIMIT_DEFAULT = 32
LIMIT_MAX = 1000


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search for messages by key or id, among those stored from `begin_ms` to before `end_ms`."""

    key: str
    message_id: str
    begin_ms: int
    end_ms: int
    """0 = until now."""
    limit: int
    """0 = 32."""
    skip: int = 0
    """Number of the newest messages to skip, because an earlier answer had them."""

    def check(self) -> None:
        """Refuse an invalid search. Errors: Invalid, naming the field."""
        if bool(self.key) == bool(self.message_id):
            raise Invalid("give a key or a message id, and not both", field="key")
        if not 0 <= self.limit <= LIMIT_MAX:
            raise Invalid(f"{self.limit}; expected 1 to {LIMIT_MAX}, or 0 for {LIMIT_DEFAULT}", field="limit")
        if self.begin_ms < 0 or self.end_ms < 0:
            raise Invalid("a time is negative; expected milliseconds since 1970-01-01 UTC", field="begin_ms")


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The found messages, newest first, and the enodes that could not be reached."""

    messages: Sequence[PlacedMessage]
    unreachable_enodes: Sequence[str]
    more: bool = False
    """Whether there are more messages than fit into one answer."""


class MessageSearch:
    """Searches for messages on all enodes of a topic."""

    def __init__(self, watch: DirectoryWatch, links: EnodeLinks) -> None:
        self._watch = watch
        self._links = links

    async def find(self, topic_name: str, request: SearchRequest) -> SearchResult:
        """Find the messages of a topic that match `request`.

        Errors: NotFound (topic), Invalid, Unavailable if no enode is reachable.
        """
        request.check()
        topic = await self._watch.topic(topic_name)
        named = await self._find_by_address(topic, request.message_id)
        if named is not None:
            return SearchResult([named], [])
        enodes = sorted(topic.enodes)
        answers = await asyncio.gather(
            *(self._find_on(enode, topic, request) for enode in enodes), return_exceptions=True
        )
        away: dict[str, OrtooError] = {}
        messages: list[PlacedMessage] = []
        for enode, answer in zip(enodes, answers, strict=True):
            if isinstance(answer, OrtooError) and answer.retriable:
                away[enode] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                messages += answer
        if away and len(away) == len(enodes):
            raise Unavailable(str(next(iter(away.values()))), retry_after_ms=500)
        messages.sort(key=lambda one: (one.stored_at_ms, one.queue, one.offset), reverse=True)
        selected = messages[request.skip : request.limit or LIMIT_DEFAULT]
        page = selected[: count_fitting(one.message for one in selected)]
        return SearchResult(page, list(away), len(page) < len(selected))

    async def _find_by_address(self, topic: Topic, message_id: str) -> PlacedMessage | None:
        """The message whose id contains its location, if it is stored."""
        address = message_address(message_id)
        if address is None or address.topic_id != topic.topic_id or topic.placement(address.enode) is None:
            return None
        found = await self.read_at(topic, Queue(topic.name, address.enode, address.queue_id), address.offset)
        return found if found is not None and found.message_id == message_id else None

    async def _find_on(self, enode: str, topic: Topic, request: SearchRequest) -> list[PlacedMessage]:
        places = await self._links.to(enode).find_messages(
            topic.topic_id,
            key=request.key,
            message_id=request.message_id,
            begin_ms=request.begin_ms,
            end_ms=request.end_ms,
            limit=request.limit,
        )
        found = [await self.read_at(topic, Queue(topic.name, enode, one.queue_id), one.offset) for one in places]
        return [message for message in found if message is not None]

    async def read_at(self, topic: Topic, queue: Queue, offset: int) -> PlacedMessage | None:
        """The message at an offset; None if it is expired or damaged."""
        try:
            request = FetchBatchesRequest(topic.topic_id, queue.queue_id, offset, bytes_max=1)
            fetched = await self._links.to(queue.enode).fetch(request)
        except (OutOfRange, DataLoss, NotFound):
            return None
        for stored in fetched.batches:
            row = offset - stored.first_offset
            if 0 <= row < stored.batch.count:
                message = open_batch(stored.batch).message(row)
                message_id = message_id_of(message, topic.topic_id, queue, offset)
                return PlacedMessage(message_id, queue, offset, stored.stored_at_ms, message)
        return None
