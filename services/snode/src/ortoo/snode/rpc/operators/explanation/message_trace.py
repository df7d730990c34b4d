"""Traces a message that a group has not received: deferred, in retries, or behind a failed message."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from ortoo.common.errors import NotFound, OrtooError
from ortoo.common.groups.group_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ortoo.common.records.text_rules import RECONSUME_TIMES, whole_number
from ortoo.snode.cluster.routes import DeliveryMode, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import DeferredMessage, EnodeLinks
from ortoo.snode.pull.message_search import MessageSearch, SearchRequest
from ortoo.snode.pull.queue_reader import PlacedMessage
from ortoo.snode.topics.group_settings import DeliveryModes
from ortoo.v1 import delivery_pb2 as pb

LETTERS_MAX = 10
"""Maximum number of dead letters of one message: each replay may be followed by another one."""
CANDIDATES_MAX = 100
"""Maximum number of failed or leased messages among which the blocking one is searched."""


@dataclass(frozen=True, slots=True)
class RetryCopy:
    """The newest copy of a failed message in the retry topic of a group that commits offsets."""

    attempts: int
    """The number of failed attempts."""
    retry_at_ms: int = 0
    """When the next attempt is due; 0 = the copy is due, or `placed` has its place."""
    placed: PlacedMessage | None = None
    """The copy, if its back-off has ended."""


@dataclass(frozen=True, slots=True)
class BlockingMessage:
    """An earlier message that has to be finished first."""

    message_id: str
    row: pb.MessageDelivery


@dataclass(frozen=True, slots=True)
class MessageTracer:
    """Searches for one message on all enodes that may have it."""

    watch: DirectoryWatch
    links: EnodeLinks
    search: MessageSearch
    modes: DeliveryModes

    async def find_deferred(self, topic: Topic, message_id: str) -> DeferredMessage | None:
        """The message among delayed messages and open transactions; None if no enode that answers has it."""
        answers = await self.links.ask_all(
            sorted(topic.enodes), lambda link: link.find_deferred(topic.topic_id, message_id)
        )
        return next((one for one in answers.values() if one is not None), None)

    async def find_retry_copy(self, group: str, message_id: str) -> RetryCopy | None:
        """The newest retry copy of a message; None if there is none, or if it cannot be searched now."""
        with contextlib.suppress(OrtooError):
            topic = await self.watch.topic(RETRY_PREFIX + group)
            delayed = await self.find_deferred(topic, message_id)
            if delayed is not None:
                return RetryCopy(delayed.attempts, delayed.deliver_at_ms)
            found = await self.search.find(topic.name, SearchRequest("", message_id, 0, 0, 1))
            for one in found.messages:
                attempts = whole_number(one.message.properties.get(RECONSUME_TIMES, "")) or 0
                return RetryCopy(attempts, placed=one)
        return None

    async def find_dead_letters(self, group: str, message_id: str) -> Sequence[PlacedMessage] | None:
        """The newest dead letters of a message in a group; None if no enode can search them now."""
        request = SearchRequest("", message_id, 0, 0, LETTERS_MAX)
        try:
            found = await self.search.find(DEAD_LETTER_PREFIX + group, request)
        except NotFound:
            return ()
        except OrtooError:
            return None
        return found.messages

    async def find_blocking(
        self, group: str, topic: Topic, message: PlacedMessage, earlier: Sequence[pb.MessageDelivery]
    ) -> BlockingMessage | None:
        """The earlier message for which this one waits; `earlier` are the unfinished messages before it in its queue.

        In a group that commits offsets the whole queue waits for a failed message. In a group that pops in order, the
        later messages of the message group wait.
        """
        message_group = message.message.message_group
        candidates = [row for row in earlier if row.attempt and row.offset < message.offset][:CANDIDATES_MAX]
        if not candidates:
            return None
        modes = {one.mode for one in await self.modes.list_modes(group) if one.topic == topic.name}
        for row in candidates:
            placed = await self.search.read_at(topic, message.queue, row.offset)
            is_same_group = placed is not None and message_group and placed.message.message_group == message_group
            if DeliveryMode.OFFSETS in modes or (DeliveryMode.POP_IN_ORDER in modes and is_same_group):
                return BlockingMessage(placed.message_id if placed is not None else "", row)
        return None
