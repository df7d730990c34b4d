"""The snode's copy of the cluster's directory: applied changes in, answers out; no I/O, no clock."""

import asyncio
import contextlib
import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterable

from ortoo.common.cluster.names import check_topic_name
from ortoo.common.errors import Invalid, NotFound, OrtooError
from ortoo.common.process.clock import Clock
from ortoo.common.process.logs import get_logger
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from ortoo.snode.cluster.name_server import NameServer
from ortoo.snode.cluster.routes import EnodeEntry, Group, Queue, RouteChange, SnodeEntry, Topic


class Directory:
    """Topics, groups and processes by name, at one version."""

    def __init__(self) -> None:
        """Begin knowing nothing."""
        self.version = 0
        self._topics: dict[str, Topic] = {}
        self._groups: dict[str, Group] = {}
        self._enodes: dict[str, EnodeEntry] = {}
        self._snodes: dict[str, SnodeEntry] = {}

    def apply(self, change: RouteChange) -> set[str]:
        """Take over a change; returns the names of the topics that are new, different or gone.

        Of several name servers one may be behind another, and has not heard yet of what is newer than its snapshot.
        """
        before, groups_before = self._topics, self._groups
        topics = {} if change.snapshot else dict(before)
        for name in change.deleted_topics:
            topics.pop(name, None)
        topics.update((topic.name, topic) for topic in change.topics)
        groups = {} if change.snapshot else dict(groups_before)
        for name in change.deleted_groups:
            groups.pop(name, None)
        groups.update((group.name, group) for group in change.groups)
        if change.snapshot:
            topics.update((n, topic) for n, topic in before.items() if topic.version > change.version)
            groups.update((n, group) for n, group in groups_before.items() if group.version > change.version)
        self._topics, self._groups = topics, groups
        if change.snapshot:
            # A name server that just started has no leases yet; where the processes were is still worth a try.
            self._enodes = {n: dataclasses.replace(e, alive=False) for n, e in self._enodes.items()}
            self._snodes = {n: dataclasses.replace(s, alive=False) for n, s in self._snodes.items()}
        self._enodes.update((enode.name, enode) for enode in change.enodes)
        self._snodes.update((snode.name, snode) for snode in change.snodes)
        self.version = change.version
        return {name for name in before.keys() | topics.keys() if before.get(name) != topics.get(name)}

    def learn_topic(self, topic: Topic) -> bool:
        """Take over one topic that the name server was asked for; True if it is news. The watch will bring it too."""
        known = self._topics.get(topic.name)
        if known is not None and known.version >= topic.version:
            return False
        self._topics[topic.name] = topic
        return True

    def learn_group(self, group: Group) -> None:
        """Take over one group that the name server was asked for, unless it is known."""
        known = self._groups.get(group.name)
        if known is None or known.version < group.version:
            self._groups[group.name] = group

    def find_topic(self, name: str) -> Topic | None:
        """A topic, or None if it is not known here."""
        return self._topics.get(name)

    def topic(self, name: str) -> Topic:
        """A topic. Errors: NotFound."""
        topic = self._topics.get(name)
        if topic is None:
            raise unknown_topic(name)
        return topic

    def topic_name(self, topic_id: int) -> str:
        """The name of the topic with this id; empty if it is not known here. Looks at every topic."""
        return next((topic.name for topic in self._topics.values() if topic.topic_id == topic_id), "")

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def group(self, name: str) -> Group | None:
        """A group's configuration, or None if it is not known here."""
        return self._groups.get(name)

    def enode(self, name: str) -> EnodeEntry | None:
        """A storage node, or None if it was never heard of."""
        return self._enodes.get(name)

    def enodes(self) -> list[EnodeEntry]:
        """All storage nodes, by name."""
        return [self._enodes[name] for name in sorted(self._enodes)]

    def snodes(self) -> list[SnodeEntry]:
        """All proxies, by name."""
        return [self._snodes[name] for name in sorted(self._snodes)]

    def alive(self, queues: Iterable[Queue]) -> list[Queue]:
        """Those queues whose enode has a lease."""
        return [q for q in queues if (entry := self._enodes.get(q.enode)) is not None and entry.alive]


def unknown_topic(name: str) -> NotFound:
    """The error for a topic that does not exist."""
    return NotFound(
        f"there is no topic {name!r}; create it with `ortoo topic create {name}` "
        "or AdminService/CreateTopic, or fix the name",
        field="topic",
    )


def check_writable(topic: Topic, queue: Queue) -> None:
    """Refuse a queue that takes no messages. Errors: Invalid."""
    if not topic.writable:
        raise Invalid(f"topic {topic.name} is {topic.permission.name}: nothing may be sent to it", field="queue.topic")
    _check_queue(topic, queue, "write", "that take messages")


def check_readable(topic: Topic, queue: Queue) -> None:
    """Refuse a queue that cannot be read. Errors: Invalid."""
    if not topic.readable:
        raise Invalid(f"topic {topic.name} is {topic.permission.name}: it cannot be read", field="queue.topic")
    _check_queue(topic, queue, "read", "that can be read")


def _check_queue(topic: Topic, queue: Queue, what: str, which: str) -> None:
    placement = topic.placement(queue.enode)
    if placement is None:
        enodes = ", ".join(p.enode for p in topic.placements) or "no enode"
        raise Invalid(
            f"topic {topic.name} has no queues on enode {queue.enode!r}, but on {enodes}; QueryRoute names its queues",
            field="queue.enode",
        )
    count = placement.write_queue_count if what == "write" else placement.read_queue_count
    if queue.queue_id >= count:
        raise Invalid(
            f"topic {topic.name} has {what} queues 0 to {count - 1} on {queue.enode}, not {queue.queue_id}; "
            f"QueryRoute names those {which}",
            field="queue.queue_id",
        )


UNKNOWN_TOPIC_TTL_S = 1.0
"""How long an answer "there is no such topic" is believed."""
UNKNOWN_TOPICS_MAX = 1_000
REACHED_TIMEOUT_S = 2.0
_log = get_logger("directory")


class DirectoryWatch:
    """Follows the name server for ever; while it is away the copy serves."""

    def __init__(self, directory: Directory, name_server: NameServer, *, clock: Clock, randomness: Randomness) -> None:
        self.ready = asyncio.Event()
        """Set when the directory has been seen once."""
        self._directory = directory
        self._name_server = name_server
        self._clock = clock
        self._randomness = randomness
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[set[str]], None]] = []
        self._unknown: OrderedDict[str, float] = OrderedDict()

    def on_topics(self, listener: Callable[[set[str]], None]) -> None:
        """Call `listener` with the names of topics whenever some have changed."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Follow, and begin again when the name server was away."""
        backoff, attempt = Backoff(first_s=0.05, max_s=1.0), 0
        while True:
            try:
                async for change in self._name_server.watch():
                    self._tell(self._directory.apply(change))
                    attempt = 0
                    self.ready.set()
                _log.info("the name server ended the watch")
            except OrtooError as error:
                if attempt == 0:
                    _log.warning("the name server cannot be followed; serving from the copy", reason=str(error))
                self._name_server.pass_over(error)
            await self._clock.sleep(backoff.delay_s(attempt, self._randomness))
            attempt += 1

    async def topic(self, name: str) -> Topic:
        """A topic; one that is not known here is asked for once. Errors: Invalid, NotFound."""
        return self._directory.find_topic(name) or await self._ask(name)

    async def reached(self, version: int) -> None:
        """Wait, for a bounded time, until the directory is at least at `version`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REACHED_TIMEOUT_S):
                while self._directory.version < version:
                    await self._changed.wait()

    async def gone(self, name: str) -> None:
        """Wait, for a bounded time, until the directory has no topic of this name."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REACHED_TIMEOUT_S):
                while self._directory.find_topic(name) is not None:
                    await self._changed.wait()

    async def _ask(self, name: str) -> Topic:
        check_topic_name(name)
        now_s = self._clock.monotonic_s()
        if self._unknown.get(name, 0.0) > now_s:
            raise unknown_topic(name)
        try:
            topic = await self._name_server.get_topic(name)
        except NotFound:
            self._unknown[name] = now_s + UNKNOWN_TOPIC_TTL_S
            self._unknown.move_to_end(name)
            if len(self._unknown) > UNKNOWN_TOPICS_MAX:
                self._unknown.popitem(last=False)
            raise unknown_topic(name) from None
        if self._directory.learn_topic(topic):
            self._tell({name})
        return self._directory.topic(name)

    def _tell(self, topics: set[str]) -> None:
        for name in topics:
            self._unknown.pop(name, None)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        if topics:
            for listener in self._listeners:
                listener(topics)
