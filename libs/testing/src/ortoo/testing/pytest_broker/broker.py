"""The object of the fixture `broker`."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ortoo.client import Client, DeadLetter, DelayedMessage, GroupDescription, Message, NotFound, StoredMessage, connect
from ortoo.testing.pytest_broker.clock import BrokerClock
from ortoo.testing.pytest_broker.durations import Duration, seconds_of
from ortoo.testing.pytest_broker.faults import ActiveFault, Faults, LostResponses
from ortoo.testing.pytest_broker.hosted_broker import ADDRESS, HostedBroker
from ortoo.testing.simulation.cluster.machine import Machine

DELAYED_MAX = 1_000


class BrokerFaults:
    """Faults that are injected without waiting. Roles are "namesrv", "enode" and "snode"."""

    def __init__(self, stage: HostedBroker) -> None:
        """Created by the fixtures."""
        self._stage = stage

    @property
    def address(self) -> str:
        """Where clients connect: host:port. A client without a configured address connects there too."""
        return ADDRESS

    @property
    def seed(self) -> int:
        """The seed of all random choices, such as the delays of packets."""
        return self._stage.options.seed

    @property
    def faults(self) -> Faults:
        """Fault injection. Errors: RuntimeError for a broker in real time."""
        return self._stage.faults

    def kill(self, role: str, *, back_after: Duration | None = None) -> None:
        """Kill a role's process like `kill -9`; stored data stay. It starts again after `back_after`, if given."""
        self.faults.kill(role, None if back_after is None else seconds_of(back_after))

    def freeze(self, role: str) -> ActiveFault:
        """Stop a role's process like SIGSTOP, until the end of the `with` block or `end()`."""
        return self.faults.freeze(role)

    def isolate(self, role: str) -> ActiveFault:
        """Cut a role's machine off the network: packets wait, connections stay."""
        return self.faults.isolate(role)

    def lose_acknowledgements(
        self, count: int = 1, *, kill: str | None = None, back_after: Duration | None = None
    ) -> LostResponses:
        """Lose the next answers to sends: the messages are stored, and their sender sees its connection break.

        With `kill="enode"` that role's process is killed at the first one, and starts again after `back_after`. Senders
        of this library retry, and no message is stored twice for it.
        """
        back_s = None if back_after is None else seconds_of(back_after)
        return self.faults.lose_responses(count, kill, back_s)

    def full_disk(self) -> ActiveFault:
        """Fill the enode's disk: sends are refused."""
        return self.faults.full_disk()

    def slow_disk(self, factor: float = 50.0) -> ActiveFault:
        """Slow the enode's disk down by `factor`."""
        return self.faults.slow_disk(factor)

    def slow_network(self, factor: float = 50.0) -> ActiveFault:
        """Slow the network between the test and the broker down by `factor`."""
        return self.faults.slow_network(factor)


class Broker(BrokerFaults):
    """A name server, an enode and a snode beside the test, on virtual time. Created by the fixture `broker`."""

    def __init__(self, stage: HostedBroker) -> None:
        """Created by the fixture."""
        super().__init__(stage)
        self.clock = BrokerClock(stage.passing)
        """The clock of the broker, the test and its clients."""

    def port(self) -> int:
        """Always fails, because an asynchronous test runs on virtual time, and a real port in real time.

        Errors: RuntimeError.
        """
        raise RuntimeError(
            "an asynchronous test runs on virtual time, and a port in real time. Write a plain `def` test and take "
            "the fixture blocking_broker: its port() is a real broker, for programs in any language"
        )

    async def start(self, role: str) -> None:
        """Start a role that was killed, and wait until it is ready."""
        await start_and_wait(self.faults.machine(role))

    async def restart(self, role: str) -> None:
        """Kill a role, start it again, and wait until it is ready."""
        self.kill(role)
        await self.start(role)

    async def create_topic(self, name: str, *, queues: int = 4) -> None:
        """Create a topic. Errors: AlreadyExists, Invalid."""
        async with connect(ADDRESS) as client:
            await client.admin.create_topic(name, queue_count=queues)

    async def send(self, topic: str, *messages: Message | bytes) -> None:
        """Send messages, and wait until all are stored."""
        async with connect(ADDRESS) as client:
            await send(client, topic, messages)

    async def messages(self, topic: str) -> list[StoredMessage]:
        """All messages stored in a topic, consumed or not; those of one queue in order. Errors: NotFound."""
        async with connect(ADDRESS) as client:
            return await messages(client, topic)

    async def dead_letters(self, group: str) -> list[DeadLetter]:
        """The dead letters of a group."""
        async with connect(ADDRESS) as client:
            return await dead_letters(client, group)

    async def delayed(self, topic: str) -> list[DelayedMessage]:
        """The delayed messages of a topic, ordered by their time `deliver_at_ms`."""
        async with connect(ADDRESS) as client:
            return await client.admin.list_delayed(topic, limit=DELAYED_MAX)

    async def subscribers(self, group: str) -> GroupDescription:
        """The members of a group (`members`), and its progress in each topic (`progress`). Errors: NotFound."""
        async with connect(ADDRESS) as client:
            return await client.admin.groups.describe(group)

    @asynccontextmanager
    async def connect(self, **options: Any) -> AsyncIterator[Client]:
        """A client of this broker, like `ortoo.client.connect`."""
        async with connect(ADDRESS, **options) as client:
            yield client


async def start_and_wait(machine: Machine) -> None:
    """Start a machine, and wait until it is ready."""
    machine.start()
    await machine.ready.wait()


async def send(client: Client, topic: str, given: Sequence[Message | bytes]) -> None:
    """Send messages, and wait until all are stored."""
    async with client.producer(topic) as producer:
        await (await producer.send_many(given))


async def messages(client: Client, topic: str) -> list[StoredMessage]:
    """All messages of a topic."""
    return [stored async for stored in client.admin.tail(topic, from_beginning=True, follow=False)]


async def dead_letters(client: Client, group: str) -> list[DeadLetter]:
    """The dead letters of a group; empty when it never had one."""
    try:
        return [letter async for letter in client.admin.list_dead_letters(group)]
    except NotFound:
        return []
