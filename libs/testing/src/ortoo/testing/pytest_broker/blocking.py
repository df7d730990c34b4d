"""The object of the fixture `blocking_broker`."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ortoo.cli.dev.cluster import ANY_PORT, open_dev_cluster
from ortoo.client import DeadLetter, DelayedMessage, GroupDescription, Message, NotFound, StoredMessage
from ortoo.client.blocking import BlockingClient, connect
from ortoo.client.blocking.loop_thread import LoopThread
from ortoo.testing.pytest_broker.broker import DELAYED_MAX, BrokerFaults, start_and_wait
from ortoo.testing.pytest_broker.clock import BlockingClock
from ortoo.testing.pytest_broker.faults import Faults
from ortoo.testing.pytest_broker.hosted_broker import HostedBroker


class BlockingBroker(BrokerFaults):
    """As `Broker`, for tests that are plain functions and use `ortoo.client.blocking`."""

    def __init__(self, stage: HostedBroker) -> None:
        """Created by the fixture."""
        super().__init__(stage)
        self._real: RealBroker | None = None
        self._clock = BlockingClock(stage.passing, stage.drive)

    @property
    def clock(self) -> BlockingClock:
        """The clock of the broker, the test and its clients. Errors: RuntimeError after `port`."""
        self._needs_virtual_time("clock")
        return self._clock

    @property
    def address(self) -> str:
        """Where clients connect: host:port."""
        return super().address if self._real is None else self._real.address

    def port(self) -> int:
        """A real TCP port on 127.0.0.1, for programs in any language; the first call starts a real broker there.

        From then on this fixture is that broker, in real time: it has no clock, no seed and no faults. Clients of the
        test connect to `address`. Errors: RuntimeError when a message was sent before.
        """
        if self._real is None:
            if self._stage.message_trace.lines_of_test:
                raise RuntimeError(
                    "call port() before anything else: messages sent on virtual time are not in the real broker"
                )
            if self._stage.options.settings:
                raise RuntimeError("a broker with a real port has the settings of `ortoo dev`; take them from the mark")
            self._stage.close()
            self._real = RealBroker()
            for topic in self._stage.options.topics:
                self.create_topic(topic)
        return int(self._real.address.rpartition(":")[2])

    @property
    def faults(self) -> Faults:
        """Fault injection. Errors: RuntimeError after `port`."""
        self._needs_virtual_time("faults")
        return super().faults

    def start(self, role: str) -> None:
        """Start a role that was killed, and wait until it is ready."""
        self._stage.drive(start_and_wait(self.faults.machine(role)))

    def restart(self, role: str) -> None:
        """Kill a role, start it again, and wait until it is ready."""
        self.kill(role)
        self.start(role)

    def create_topic(self, name: str, *, queues: int = 4) -> None:
        """Create a topic. Errors: AlreadyExists, Invalid."""
        with connect(self.address) as client:
            client.admin.create_topic(name, queue_count=queues)

    def send(self, topic: str, *messages: Message | bytes) -> None:
        """Send messages, and wait until all are stored."""
        with connect(self.address) as client, client.producer(topic) as producer:
            producer.send_many(messages)

    def messages(self, topic: str) -> list[StoredMessage]:
        """All messages stored in a topic, consumed or not; those of one queue in order. Errors: NotFound."""
        with connect(self.address) as client:
            return list(client.admin.tail(topic, from_beginning=True, follow=False))

    def dead_letters(self, group: str) -> list[DeadLetter]:
        """The dead letters of a group."""
        with connect(self.address) as client:
            try:
                return list(client.admin.list_dead_letters(group))
            except NotFound:
                return []

    def delayed(self, topic: str) -> list[DelayedMessage]:
        """The delayed messages of a topic, ordered by their time `deliver_at_ms`."""
        with connect(self.address) as client:
            return client.admin.list_delayed(topic, limit=DELAYED_MAX)

    def subscribers(self, group: str) -> GroupDescription:
        """The members of a group (`members`), and its progress in each topic (`progress`). Errors: NotFound."""
        with connect(self.address) as client:
            return client.admin.groups.describe(group)

    @contextmanager
    def connect(self, **options: Any) -> Iterator[BlockingClient]:
        """A client of this broker, like `ortoo.client.blocking.connect`."""
        with connect(self.address, **options) as client:
            yield client

    def close(self) -> None:
        """Stop the real broker, if there is one."""
        if self._real is not None:
            self._real.close()

    def _needs_virtual_time(self, what: str) -> None:
        if self._real is not None:
            raise RuntimeError(f"{what}: a broker with a real port runs in real time, without clock, seed and faults")


class RealBroker:
    """`ortoo dev` in a thread of the test's process, with a temporary data folder."""

    def __init__(self) -> None:
        """Start it, and wait until it is ready."""
        self._parts = ExitStack()
        folder = self._parts.enter_context(tempfile.TemporaryDirectory(prefix="ortoo-"))
        thread = LoopThread()
        self._parts.callback(thread.close)
        running = self._parts.enter_context(thread.enter_context(open_dev_cluster(Path(folder), ANY_PORT)))
        self.address = running.address
        """host:port."""

    def close(self) -> None:
        """Stop it and delete its data."""
        self._parts.close()
