"""The clients of RocketMQ that get checks of open transactions."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from apache.rocketmq.v2.service_pb2 import TelemetryCommand
from ortoo.common.directory.topic import Permission
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.records.batch import Message, encode
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.routes import Topic
from ortoo.snode.enodes.link import DueHalf, OpenHalf
from ortoo.snode.rocketmq.clients.table import COMMANDS_MAX, ClientTable, CommandStream, ConnectedClient
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.send.transactions import TransactionActivity
from ortoo.snode.send.transactions import TransactionProcessor

TOPICS = {"t": 1, "u": 2, "other": 3}


class Producers:
    """Clients that send to topics, and listen to commands unless the test sets otherwise."""

    def __init__(self, names: str, topics: Iterable[str], *, deaf: str = "") -> None:
        directory: Any = DirectoryCache()
        for name, topic_id in TOPICS.items():
            directory.update_topic(Topic(name, topic_id, 1, Permission.READ_WRITE, ()))
        parts: Any = SimpleNamespace(directory=directory)
        self.clients = ClientTable(MemoryBudget(1 << 30).share("clients"))
        self.transactions = TransactionProcessor(parts, parts, parts, parts)
        self.activity = TransactionActivity(self.transactions, directory)
        self.streams: dict[str, CommandStream] = {}
        for name in names:
            client = self.clients.touch(Caller(name), 0.0)
            self.clients.add_published_topics(client, set(topics))
            if name not in deaf:
                self.streams[name] = client.stream = CommandStream()
            self.activity.watch_transactions(client)

    def asked(self, topic: str) -> str:
        """The client that gets a check of a transaction of this topic; empty if none does."""
        waiting = {name: len(stream._waiting) for name, stream in self.streams.items()}
        half = OpenHalf(1, TOPICS[topic], 0, 1, 5, 6, 1, False, topic)
        self.transactions._send_check("e", DueHalf(half, encode([Message(b"x")], now_ms=1)))
        return "".join(name for name, stream in self.streams.items() if len(stream._waiting) > waiting[name])

    def leave(self, name: str) -> ConnectedClient:
        """A client disconnects."""
        client = self.clients.remove(name)
        assert client is not None
        self.activity.unwatch_transactions(client)
        return client


async def test_a_transaction_is_asked_of_a_producer_that_listens_and_of_another_one_each_time() -> None:
    """A producer without a stream cannot be asked; those that listen take turns."""
    producers = Producers("abc", "t", deaf="b")
    assert sorted(producers.asked("t") for _ in range(4)) == ["a", "a", "c", "c"]
    assert producers.asked("other") == ""
    assert producers.transactions._producers.keys() == {"t"}
    for name in "ac":
        assert not producers.leave(name).checked_topics
    assert producers.asked("t") == ""
    producers.leave("b")
    assert not producers.transactions._producers


async def test_the_producers_of_each_topic_take_turns_whatever_others_are_asked() -> None:
    """Two topics with alternating checks; a producer that does not answer costs every other turn (G7)."""
    producers = Producers("ab", "tu")
    asked = [(topic, producers.asked(topic)) for topic in "tututu"]
    assert [name for topic, name in asked if topic == "t"] == ["a", "b", "a"]
    assert [name for topic, name in asked if topic == "u"] == ["a", "b", "a"]


async def test_who_comes_to_send_to_more_topics_is_asked_about_those_too() -> None:
    """As soon as it is recorded, and once: a repeated registration does not add turns."""
    producers = Producers("ab", "t")
    client = producers.clients.get("a")
    assert client is not None
    producers.clients.add_published_topics(client, {"u"})
    assert producers.asked("u") == ""
    for _ in range(2):
        producers.activity.watch_transactions(client)
    assert producers.asked("u") == "a"
    assert [producers.asked("t") for _ in range(4)] == ["a", "b", "a", "b"]


async def test_who_may_not_send_any_more_or_does_not_read_is_not_asked() -> None:
    """The next one is asked instead of the first; in place of the second, at the next check."""
    producers = Producers("abc", "t")
    for name in "ab":
        client = producers.clients.get(name)
        assert client is not None
        if name == "a":
            client.principal = SimpleNamespace(may_send_to=lambda topic: False)  # type: ignore[assignment]
        else:
            for _ in range(COMMANDS_MAX):
                producers.streams[name].send(TelemetryCommand())
    assert [producers.asked("t") for _ in range(3)] == ["", "c", ""]
