"""Keeps the copy of the directory up to date, and queries the name server for topics that the copy lacks."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable

from ortoo.common.cluster.names import check_topic_name
from ortoo.common.errors import NotFound, OrtooError
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
WAIT_TIMEOUT_S = 2.0
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
