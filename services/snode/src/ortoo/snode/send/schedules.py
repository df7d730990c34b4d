"""Schedules across the enodes: each is kept by one enode of its topic, which sends its messages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ortoo.common.cluster.names import check_schedule_name
from ortoo.common.directory.topic import MessageType
from ortoo.common.errors import Invalid, NotFound, Unavailable
from ortoo.common.groups.queue_choice import queue_of_group
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.directory import check_client_writes, resolve_write_queues
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.enodes.link import EnodeLinks, ScheduleChange, StoredSchedule
from ortoo.snode.send.delayed import LIST_DEFAULT, LIST_MAX
from ortoo.snode.send.queue_choice import queue_of_level
from ortoo.snode.topics.creation import ProducerTopics


@dataclass(frozen=True, slots=True)
class PlacedSchedule:
    """A schedule and the queue of its messages."""

    queue: Queue
    stored: StoredSchedule


@dataclass(slots=True, eq=False)
class Schedules:
    """Creates, lists and changes schedules."""

    cluster: ClusterView
    producer_topics: ProducerTopics
    links: EnodeLinks

    async def create(
        self, topic_name: str, asked: StoredSchedule, message: Message, *, replaces: bool
    ) -> PlacedSchedule:
        """Store a schedule with the name and the rule in `asked`; returns when it is durable.

        It stays in its queue when it is replaced. A new one is refused while an enode of the topic is unreachable,
        because that enode may have a schedule of this name.
        Errors: NotFound, Invalid, AlreadyExists, Overloaded, Unavailable.
        """
        topic = await self.producer_topics.topic(topic_name)
        message.check("message")
        for name in ("message_id", "deliver_at_ms", "expire_at_ms"):
            if getattr(message, name) is not None:
                raise Invalid("leave it out: each message of a schedule gets its own", field=f"message.{name}")
        known = await self._find(topic, asked.name)
        queue = known.queue if known is not None else _choose_queue(topic, asked.name, message)
        # Without a time, the same message has the same bytes, so that a repeated request is recognized.
        batch = encode([message.replace(born_at_ms=0)], now_ms=0)
        schedule = replace(asked, topic_id=topic.topic_id, queue_id=queue.queue_id, batch=batch)
        return PlacedSchedule(queue, await self.links.to(queue.enode).store_schedule(schedule, replaces=replaces))

    async def list_all(self, topic_name: str, limit: int) -> tuple[list[PlacedSchedule], list[str]]:
        """Schedules of a topic, or of all topics if the name is empty, and the unreachable enodes. Errors: Invalid."""
        if not 0 <= limit <= LIST_MAX:
            raise Invalid(f"{limit}; give at most {LIST_MAX}", field="limit")
        limit = limit or LIST_DEFAULT
        topic = await self.cluster.watch.topic(topic_name) if topic_name else None
        enodes = topic.enodes if topic is not None else [entry.name for entry in self.cluster.directory.enodes()]
        topic_id = topic.topic_id if topic is not None else 0
        answers = await self.links.ask_all(enodes, lambda link: link.list_schedules(topic_id, "", limit))
        names = await self.cluster.watch.topic_names(
            one.topic_id for schedules in answers.values() for one in schedules
        )
        found = [
            PlacedSchedule(Queue(names[one.topic_id], enode, one.queue_id), one)
            for enode, schedules in answers.items()
            for one in schedules
            if one.topic_id in names
        ]
        found.sort(key=lambda one: (one.queue.topic, one.stored.name))
        return found[:limit], [enode for enode in enodes if enode not in answers]

    async def describe(self, topic_name: str, name: str) -> PlacedSchedule:
        """A schedule with its message. Errors: NotFound, Unavailable."""
        return await self._known(await self.cluster.watch.topic(topic_name), name)

    async def change(self, topic_name: str, name: str, change: ScheduleChange) -> None:
        """Suspend, resume or delete a schedule. Errors: NotFound, Unavailable, Forbidden for a group's topic."""
        check_client_writes(topic_name)
        topic = await self.cluster.watch.topic(topic_name)
        known = await self._known(topic, name)
        await self.links.to(known.queue.enode).change_schedule(topic.topic_id, name, change)

    async def _known(self, topic: Topic, name: str) -> PlacedSchedule:
        known = await self._find(topic, name)
        if known is None:
            raise NotFound(
                f"topic {topic.name} has no schedule {name!r}; list its schedules with `ortoo schedule list --topic "
                f"{topic.name}` or AdminService/ListSchedules",
                field="name",
            )
        return known

    async def _find(self, topic: Topic, name: str) -> PlacedSchedule | None:
        check_schedule_name(name)
        answers = await self.links.ask_all(
            topic.enodes, lambda link: link.list_schedules(topic.topic_id, name, 1, with_messages=True)
        )
        for enode, schedules in answers.items():
            for one in schedules:
                return PlacedSchedule(Queue(topic.name, enode, one.queue_id), one)
        for enode in topic.enodes:
            if enode not in answers:
                raise Unavailable(f"enode {enode} is unreachable, and may have the schedule {name}; start the enode")
        return None


def _choose_queue(topic: Topic, name: str, message: Message) -> Queue:
    """The queue of a new schedule: that of its message group, otherwise one that depends only on its name."""
    queues: Sequence[Queue] = resolve_write_queues(topic, None)
    chosen = queue_of_group(message.message_group or name, queues)
    if topic.message_type is MessageType.PRIORITY and not message.message_group:
        return queue_of_level(topic, chosen, message.priority or 0)
    return chosen
