"""docs/operations/backups.md: an enode's store is lost and restored by the page's own commands."""

import asyncio
import shutil
from pathlib import Path

import pytest

from ortoo.client import ConsumerSettings, Fenced, PoppedMessage, connect
from ortoo.common.process.background import Background
from ortoo.verification.servers import command
from ortoo.verification.servers.cluster import open_cluster
from tests.e2e.test_documents import says, steps


async def test_the_page_is_true_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer and a producer that run all the time continue at the restored enode, without a restart."""
    monkeypatch.chdir(tmp_path)
    async with open_cluster(tmp_path / "ortoo-data") as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("orders", queue_count=1)
        async with (
            mq.producer("orders") as producer,
            mq.consumer("billing", "orders", ConsumerSettings(from_beginning=True, ack_interval_ms=10)) as consumer,
        ):
            received = aiter(consumer)

            async def send_and_get(body: bytes) -> None:
                async with asyncio.timeout(60):
                    await producer.send(body)
                    while (message := await anext(received)).body != body:
                        message.ack()
                    message.ack()

            await send_and_get(b"before the backup")
            seen = ""
            for number, (line, expected) in enumerate(steps("operations/backups.md")):
                if number == 1:
                    await send_and_get(b"lost with the disk")
                    await cluster.close("enode-0")
                    shutil.rmtree(tmp_path / "ortoo-data/enode-0")
                if number == 2:
                    await cluster.open_enode("enode-0")
                    async with asyncio.timeout(60):
                        # Name servers know that it is alive before the snode is connected again.
                        while not (await mq.admin.describe_topic("orders")).queues:
                            await cluster.clock.sleep(0.02)
                outcome = await command.run(line.split(), cluster.address)
                assert outcome.exit_code == 0, (line, outcome)
                assert says(outcome.stdout, expected), (line, outcome)
                seen += outcome.stdout
            assert number == 2
            assert "lost with the disk" not in seen
            await send_and_get(b"after it")
        async with asyncio.timeout(60):
            while (lag := await mq.admin.describe_lag("billing", "orders")).lag_messages:
                await cluster.clock.sleep(0.02)
        assert [one.end_offset for one in lag.queues] == [2]


async def test_a_running_consumer_gets_what_is_stored_at_once_in_a_restored_enode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offset is beyond the backup, whose later offsets are assigned again: it restarts at the end of the backup."""
    monkeypatch.chdir(tmp_path)
    async with (
        open_cluster(tmp_path / "ortoo-data") as cluster,
        connect(cluster.address) as mq,
        Background("reader") as background,
    ):
        await mq.admin.create_topic("orders", queue_count=1)
        received: list[bytes] = []
        settings = ConsumerSettings(from_beginning=True, ack_interval_ms=10)
        async with mq.producer("orders") as producer, mq.consumer("billing", "orders", settings) as consumer:

            async def read() -> None:
                async for message in consumer:
                    received.append(message.body)
                    message.ack()

            async def until(*bodies: bytes) -> None:
                async with asyncio.timeout(60):
                    while not set(bodies) <= set(received):
                        await cluster.clock.sleep(0.02)

            async def run(line: str) -> None:
                assert (await command.run(line.split(), cluster.address)).exit_code == 0

            background.spawn("read", read())
            await producer.send(b"before")
            await until(b"before")
            await run("ortoo-enode backup ortoo-data/enode-0 backup")
            lost, new = ([b"%s %d" % (kind, number) for number in range(20)] for kind in (b"lost", b"new"))
            await asyncio.gather(*await producer.send_many(lost))
            await until(*lost)
            await cluster.close("enode-0")
            shutil.rmtree(tmp_path / "ortoo-data/enode-0")
            await run("ortoo-enode restore backup ortoo-data/enode-0")
            await cluster.open_enode("enode-0")
            async with mq.producer("orders") as other:  # it did not fail before, so it is quicker than the reader
                for body in new:
                    await other.send(body)
            await until(*new)


async def test_leases_from_after_the_backup_finish_no_message_of_the_restored_enode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G1, G8: new messages get the offsets of lost ones, and the group receives all of them."""
    monkeypatch.chdir(tmp_path)
    async with (
        open_cluster(tmp_path / "ortoo-data") as cluster,
        connect(cluster.address) as mq,
        asyncio.timeout(60),
    ):
        await mq.admin.create_topic("orders", queue_count=1)
        new = [b"new %d" % number for number in range(20)]
        async with mq.producer("orders") as producer, mq.pop_consumer("billing", "orders") as consumer:

            async def take(count: int) -> list[PoppedMessage]:
                taken: list[PoppedMessage] = []
                while len(taken) < count:
                    taken += await consumer.pop(count - len(taken))
                return taken

            async def run(line: str) -> None:
                assert (await command.run(line.split(), cluster.address)).exit_code == 0

            await producer.send(b"before")
            await (await take(1))[0].ack()
            await run("ortoo-enode backup ortoo-data/enode-0 backup")
            for number in range(20):
                await producer.send(b"lost %d" % number)
            leased = await take(20)
            await cluster.close("enode-0")
            shutil.rmtree(tmp_path / "ortoo-data/enode-0")
            await run("ortoo-enode restore backup ortoo-data/enode-0")
            for starts in range(2):  # the log keeps the invalidation
                if starts:
                    await cluster.close("enode-0")
                await cluster.open_enode("enode-0")
                for message in leased[starts::2]:
                    with pytest.raises(Fenced):
                        await message.ack()
                for body in new[starts::2]:
                    await producer.send(body)
            assert {message.body for message in await take(20)} == set(new)
