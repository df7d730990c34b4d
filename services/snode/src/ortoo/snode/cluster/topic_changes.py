"""Changes of single topics, for callers that wait for a few of all topics."""

import asyncio
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from ortoo.common.groups.group_topics import parent_of_topic


class TopicChanges:
    """Events that are set at changes of topics. The cost of a change depends only on the waits for its topic."""

    def __init__(self) -> None:
        self._events: dict[str, set[asyncio.Event]] = {}
        """By the name of a topic."""

    @contextmanager
    def watching(self, topics: Collection[str]) -> Iterator[asyncio.Event]:
        """An event for the block, set when one of these topics, or one of their lite topics, changes."""
        event = asyncio.Event()
        for name in topics:
            self._events.setdefault(name, set()).add(event)
        try:
            yield event
        finally:
            for name in topics:
                events = self._events[name]
                events.discard(event)
                if not events:
                    del self._events[name]

    def notify(self, topics: Iterable[str]) -> None:
        """Set the events of changed topics."""
        for name in topics:
            for place in (name, parent_of_topic(name)):
                for event in self._events.get(place or "", ()):
                    event.set()
