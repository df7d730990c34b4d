"""The state of groups while roles stop and start at bad moments: hours of virtual time."""

import pytest

from ortoo.client import Client, Consumer, ConsumerSettings, PoppedMessage, connect
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.testing.pytest_broker import Broker

MINUTES = 60.0
pytestmark = pytest.mark.ortoo(topics=["jobs"], patience="1d", enode={"group_retention_ms": 600_000})


async def consumed(broker: Broker, mq: Client, group: str) -> None:
    """A member of a group acknowledges one message and leaves."""
    async with mq.consumer(group, "jobs", ConsumerSettings(from_beginning=True)) as consumer:
        async for message in consumer:
            message.ack()
            break


async def wait(consumer: Consumer) -> None:
    """Wait for a message that never comes."""
    async for _ in consumer:
        pass


async def nothing(message: PoppedMessage) -> None:
    """Never called."""


async def committed(mq: Client, group: str) -> int:
    """The committed offsets of a group, all queues together; -1 = no state is kept."""
    offsets = [queue.committed_offset for queue in (await mq.admin.describe_lag(group, "jobs")).queues]
    return sum(offset for offset in offsets if offset > 0) if any(offset >= 0 for offset in offsets) else -1


async def test_only_the_silent_one_that_nobody_declared_is_forgotten(broker: Broker) -> None:
    """A declared group stays, and one whose member waits for hours without a message, over all restarts."""
    await broker.send("jobs", b"one")
    async with connect() as mq:
        await mq.admin.groups.update("declared", attempts_max=3)
        for group in ("silent", "declared"):
            await consumed(broker, mq, group)
        settings = ConsumerSettings(from_beginning=True)
        async with (
            Background("members") as background,
            mq.consumer("member", "jobs", settings) as member,
            mq.pop_consumer("popper", "jobs") as popper,
        ):
            async for message in member:
                message.ack()
                break
            background.spawn("member", wait(member))
            background.spawn("popper", popper.run(nothing))
            for role in ("enode", "namesrv", "snode", "enode"):
                await SystemClock().sleep(7 * MINUTES)
                await broker.restart(role)
            await SystemClock().sleep(15 * MINUTES)
            found = {group: await committed(mq, group) for group in ("silent", "declared", "member", "popper")}
        assert found == {"silent": -1, "declared": 1, "member": 1, "popper": 1}


@pytest.mark.ortoo(topics=["jobs"], patience="1d", namesrv={"group_deletion_grace_ms": 600_000})
async def test_a_deletion_is_carried_out_by_an_enode_that_was_away_when_it_was_due(broker: Broker) -> None:
    """Minutes later, over restarts of all roles; a group created later by that name is another one."""
    await broker.send("jobs", b"one")
    async with connect() as mq:
        await mq.admin.groups.update("g", attempts_max=3)
        await consumed(broker, mq, "g")
        await SystemClock().sleep(1)
        await mq.admin.delete_group("g")
        broker.kill("enode")
        await SystemClock().sleep(12 * MINUTES)
        assert await mq.admin.list_deleted_groups() == []
        await mq.admin.groups.update("g", attempts_max=4)
        await broker.start("enode")
        await SystemClock().sleep(2 * MINUTES)
        assert await committed(mq, "g") == -1
        await consumed(broker, mq, "g")
        for role in ("namesrv", "enode"):
            await broker.restart(role)
            await SystemClock().sleep(2 * MINUTES)
        assert await committed(mq, "g") == 1
