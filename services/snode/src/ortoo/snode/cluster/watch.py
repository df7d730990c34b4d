"""Keeps the copy of the directory up to date, and queries the name server for topics that the copy lacks."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from ortoo.common.cluster.names import check_topic_name
from ortoo.common.errors import NotFound, OrtooError, Unavailable
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from ortoo.snode import log_events
from ortoo.snode.cluster.directory import DirectoryCache, unknown_topic
from ortoo.snode.cluster.name_server import NameServerClient
from ortoo.snode.cluster.routes import Topic
from ortoo.snode.cluster.topic_changes import TopicChanges

UNKNOWN_TOPIC_TTL_S = 1.0
"""Time for which the answer "there is no such topic" is cached."""
UNKNOWN_TOPICS_MAX = 1_000
NAMES_AT_ONCE_MAX = 1_000
"""The maximum number of topics in a request to a name server."""
WAIT_TIMEOUT_S = 2.0
T = TypeVar("T")
_log = get_logger("directory")


class DirectoryWatch:
    """Keeps the copy of the directory up to date. While no name server is reachable, the copy answers requests."""

    def __init__(
        self, directory: DirectoryCache, name_server: NameServerClient, *, clock: Clock, randomness: Randomness
    ) -> None:
        self.ready = asyncio.Event()
        """Set when the directory was received for the first time."""
        self._directory = directory
        self._name_server = name_server
        self._clock = clock
        self._randomness = randomness
        self.changed = asyncio.Event()
        """Set, and replaced, at the next change of the directory."""
        self.topic_changes = TopicChanges()
        """The changes of single topics."""
        self.on_topics_changed: Callable[[set[str]], None] = lambda topics: None
        """Called with the names of the topics that have changed."""
        self._unknown_until_s: OrderedDict[str, float] = OrderedDict()

    async def run(self) -> None:
        """Apply the changes that the name server sends, and reconnect after it was unreachable.

        Other errors end the process, because a snode cannot work without a directory.
        """
        backoff, attempt = Backoff(first_s=0.05, max_s=1.0), 0
        while True:
            try:
                async for change in self._name_server.watch():
                    self._notify(self._directory.apply(change))
                    attempt = 0
                    self.ready.set()
                    if change.snapshot or change.resumed:
                        await self.load_lite_topics(self._directory.lite.names())
                _log.emit(log_events.ROUTE_WATCH_ENDED)
            except OrtooError as error:
                if attempt == 0:
                    _log.emit(log_events.ROUTE_WATCH_FAILED_RETRYING, reason=str(error))
                self._name_server.fail_over(error)
            await self._clock.sleep(backoff.delay_s(attempt, self._randomness))
            attempt += 1

    def known_topic(self, name: str) -> Topic | None:
        """The topic with this name, if the copy has it. A changed topic is another object."""
        return self._directory.find_topic(name)

    async def topic(self, name: str) -> Topic:
        """The topic with this name, from the copy or else from the name server. Errors: Invalid, NotFound."""
        return self._directory.find_topic(name) or await self._fetch_topic(name)

    async def load_lite_topics(self, names: Iterable[str]) -> None:
        """Load lite topics into the copy, unless it has them, or has seen that they do not exist.

        The watch then keeps them up to date. Errors: Unavailable.
        """
        for part in _in_batches(self._directory.lite.enter(names)):
            seen_version, directories = self._directory.version, self._directory.lite.directories
            answer = await self._name_server.get_topics(part)
            self._check_directory(directories)
            found = {topic.name: topic for topic in answer.topics}
            self._notify(self._directory.lite.learn(part, found, answer.version, seen_version))

    async def find_lite_topics(self, names: Iterable[str]) -> None:
        """Load the lite topics among these topics. While no name server answers, further ones stay unknown."""
        directory = self._directory
        missing = [one for one in names if directory.parent_of(one) is not None and directory.find_topic(one) is None]
        if missing:
            with contextlib.suppress(OrtooError):
                await self.load_lite_topics(missing)

    async def load_all_lite_topics(self, parent: str) -> None:
        """Load all lite topics of a parent into the copy, unless it has them. Errors: Unavailable."""
        lite, after = self._directory.lite, ""
        if lite.is_complete(parent):
            return
        lite.enter_parent(parent)
        is_listed = False
        try:
            while not is_listed:
                seen_version, directories = self._directory.version, lite.directories
                page, after = await self._name_server.list_lite_topics(parent, after, NAMES_AT_ONCE_MAX)
                self._check_directory(directories)
                lite.learn_page(parent, page.topics, page.version, seen_version)
                is_listed = not after
        finally:
            if not is_listed:
                lite.abandon_parent(parent)

    def _check_directory(self, directories: int) -> None:
        """Refuse an answer from before a change to another directory. Errors: Unavailable."""
        if self._directory.lite.directories != directories:
            raise Unavailable("the name servers have another directory now; retry", retry_after_ms=100)

    async def topic_names(self, topic_ids: Iterable[int]) -> dict[int, str]:
        """The names of the topics with these ids, also of lite topics. Missing topics are left out.

        Lite topics that the copy does not have are left out while no name server answers.
        """
        wanted = set(topic_ids)
        names = {one.topic_id: one.name for one in self._directory.topics() if one.topic_id in wanted}
        with contextlib.suppress(OrtooError):
            for part in _in_batches(sorted(wanted - names.keys())):
                directories = self._directory.lite.directories
                answer = await self._name_server.get_topics(topic_ids=part)
                self._check_directory(directories)
                self._directory.lite.remember(answer.topics, answer.version, self._directory.version)
                names.update((one.topic_id, one.name) for one in answer.topics)
        return names

    async def wait_for_version(self, version: int) -> None:
        """Wait, for a bounded time, until the copy of the directory has at least this version."""
        await self._wait_until(lambda: self._directory.version >= version)

    async def wait_until_deleted(self, name: str) -> None:
        """Wait, for a bounded time, until the copy of the directory has no topic with this name."""
        await self._wait_until(lambda: self._directory.find_topic(name) is None)

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_TIMEOUT_S):
                while not condition():
                    await self.changed.wait()

    async def _fetch_topic(self, name: str) -> Topic:
        check_topic_name(name)
        if self._directory.parent_of(name) is not None:
            await self.load_lite_topics([name])
            return self._directory.topic(name)
        now_s = self._clock.monotonic_s()
        if self._unknown_until_s.get(name, 0.0) > now_s:
            raise unknown_topic(name)
        try:
            topic = await self._name_server.get_topic(name)
        except NotFound:
            self._unknown_until_s[name] = now_s + UNKNOWN_TOPIC_TTL_S
            self._unknown_until_s.move_to_end(name)
            if len(self._unknown_until_s) > UNKNOWN_TOPICS_MAX:
                self._unknown_until_s.popitem(last=False)
            raise unknown_topic(name) from None
        if self._directory.update_topic(topic):
            self._notify({name})
        return self._directory.topic(name)

    def _notify(self, topics: set[str]) -> None:
        for name in topics:
            self._unknown_until_s.pop(name, None)
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()
        self.topic_changes.notify(topics)
        if topics:
            self.on_topics_changed(topics)


def _in_batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[at : at + NAMES_AT_ONCE_MAX] for at in range(0, len(items), NAMES_AT_ONCE_MAX))
