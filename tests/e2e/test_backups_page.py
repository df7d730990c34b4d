"""docs/operations/backups.md: an enode's store is lost and restored by the page's own commands."""

import asyncio
import shutil
from pathlib import Path

import pytest

from ortoo.client import ConsumerSettings, connect
from ortoo.testing.servers import command
from ortoo.testing.servers.cluster import open_cluster
from tests.e2e.test_documents import says, steps


async def test_the_page_is_true_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B-145: a consumer and a producer that run all the time go on at the restored enode, and nobody is restarted."""
    monkeypatch.chdir(tmp_path)
    async with open_cluster(tmp_path / "ortoo-data") as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("orders", queue_count=1)
        async with (
            mq.producer("orders") as producer,
            mq.consumer("billing", "orders", ConsumerSettings(from_first=True, ack_interval_ms=10)) as consumer,
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
                outcome = await command.run(line.split(), cluster.address)
                assert outcome.exit_code == 0, (line, outcome)
                assert says(outcome.out, expected), (line, outcome)
                seen += outcome.out
            assert number == 2
            assert "lost with the disk" not in seen
            await send_and_get(b"after it")
        async with asyncio.timeout(60):
            while (lag := await mq.admin.lag("billing", "orders")).lag_messages:
                await cluster.clock.sleep(0.02)
        assert [one.end_offset for one in lag.queues] == [2]
