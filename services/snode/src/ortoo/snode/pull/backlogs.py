"""The unfinished messages of a group on all enodes, by state."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ortoo.common.errors import OrtooError, Unsupported
from ortoo.common.groups.group_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.enodes.link import EnodeLinks, LagByState, TopicLag

NO_BACKLOG = LagByState()


@dataclass(frozen=True, slots=True)
class GroupBacklogs:
    """The backlogs of one group, from the enodes that answered."""

    by_topic: Mapping[int, LagByState] = field(default_factory=dict)
    """Topic id to the sum over the enodes."""
    unfinished: Mapping[tuple[str, int, int], int] = field(default_factory=dict)
    """(enode, topic id, queue id) to the number of unfinished messages."""
    retries: LagByState = NO_BACKLOG
    """The messages in the retry topic and the dead-letter topic of the group."""

    def of_topic(self, topic: Topic) -> LagByState:
        """The backlog in one topic, without the group's other topics."""
        return self.by_topic.get(topic.topic_id, NO_BACKLOG)

    def of_queue(self, topic: Topic, queue: Queue) -> int | None:
        """The number of unfinished messages of a queue; None if its enode did not report it."""
        return self.unfinished.get((queue.enode, topic.topic_id, queue.queue_id))


class BacklogReader:
    """Asks enodes for the backlogs of groups."""

    def __init__(self, directory: DirectoryCache, links: EnodeLinks) -> None:
        self._directory = directory
        self._links = links

    async def read(self, group: str, topic: Topic | None = None, *, need_all: bool = False) -> GroupBacklogs:
        """The backlogs of a group on the enodes of `topic` and of the group's own topics; without `topic`, on all.

        Enodes that do not answer are left out. Errors: Unavailable with `need_all`, if an enode does not answer.
        """
        own = self._own_topics(group)
        enodes = {entry.name for entry in self._directory.enodes()}
        if topic is not None:
            enodes = {enode for one in (topic, *own) for enode in one.enodes}
        answers = await self._links.ask_all(
            sorted(enodes),
            lambda link: link.describe_lags(group),
            is_tolerated=lambda error: _is_older(error) or (error.retriable and not need_all),
        )
        return _merge(answers, {one.topic_id for one in own})

    def _own_topics(self, group: str) -> list[Topic]:
        names = (f"{RETRY_PREFIX}{group}", f"{DEAD_LETTER_PREFIX}{group}")
        return [topic for name in names if (topic := self._directory.find_topic(name)) is not None]


def _is_older(error: OrtooError) -> bool:
    """Whether an enode of an older version answered, which does not report backlogs."""
    return isinstance(error, Unsupported)


def _merge(answers: Mapping[str, Iterable[TopicLag]], own_topic_ids: set[int]) -> GroupBacklogs:
    by_topic: dict[int, LagByState] = {}
    unfinished: dict[tuple[str, int, int], int] = {}
    for enode, found in answers.items():
        for one in found:
            by_topic[one.topic_id] = by_topic.get(one.topic_id, NO_BACKLOG).merged(one.by_state)
            unfinished |= {(enode, one.topic_id, queue_id): count for queue_id, count in one.unfinished.items()}
    retries = NO_BACKLOG
    for topic_id in own_topic_ids:
        retries = retries.merged(by_topic.get(topic_id, NO_BACKLOG))
    return GroupBacklogs(by_topic, unfinished, retries)
