"""A message that ends the process of its consumer is parked after the group's attempts, in every kind of consumer."""

import asyncio
import sys
from pathlib import Path

import pytest

from ortoo.client import Client, Message, connect
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers import command

CLOCK = SystemClock()
ATTEMPTS, WORKERS, MESSAGES, DEADLY = 2, 8, 60, 23
WORKER = """
import asyncio, os, sys
from pathlib import Path
from ortoo.client import ConsumerSettings, PullSettings, connect

address, kind, folder = sys.argv[1:]

def handle(message):
    if message.body == b"deadly":
        os._exit(1)
    (Path(folder) / message.body.decode()).touch()

async def main():
    async with connect(address) as client:
        if kind == "push":
            consumer = client.consumer("g", "t", ConsumerSettings(from_beginning=True))
        else:
            consumer = client.pull_consumer("g", "t", PullSettings(from_beginning=True))
        async with consumer:
            print("joined", flush=True)
            await (consumer.run_in_order if kind == "pull in order" else consumer.run)(handle)

asyncio.run(main())
"""


async def publish(client: Client) -> set[str]:
    """Send messages, one of which is deadly; returns the names of the others."""
    bodies = [b"deadly" if number == DEADLY else b"%d" % number for number in range(MESSAGES)]
    async with client.producer("t") as producer:
        for body in bodies:
            await producer.send(Message(body))
    return {body.decode() for body in bodies} - {"deadly"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["push", "pull", "pull in order"])
async def test_a_message_that_ends_its_consumers_is_parked(tmp_path: Path, kind: str) -> None:
    """Eight processes consume. Some of them end with the message, and the others handle all other messages (G9)."""
    done = tmp_path / "done"
    done.mkdir()
    async with command.dev_process(tmp_path) as dev, connect(dev.address) as client:
        await client.admin.create_topic("t", queue_count=2)
        await client.admin.put_group("g")
        await client.admin.groups.update("g", attempts_max=ATTEMPTS)
        names = await publish(client)
        arguments = (sys.executable, "-c", WORKER, dev.address, kind, str(done))
        workers = [await asyncio.create_subprocess_exec(*arguments) for _ in range(WORKERS)]
        try:
            async with asyncio.timeout(200):
                while not (letters := [one async for one in client.admin.list_dead_letters("g")]) or len(
                    list(done.iterdir())
                ) < len(names):
                    await CLOCK.sleep(0.1)
            ended = sum(worker.returncode is not None for worker in workers)
        finally:
            for worker in workers:
                if worker.returncode is None:
                    worker.kill()
                await worker.wait()
    assert [(letter.message.body, letter.reason, letter.attempts) for letter in letters] == [
        (b"deadly", "attempts", ATTEMPTS)
    ]
    assert {path.name for path in done.iterdir()} == names
    assert ATTEMPTS <= ended < WORKERS
