"""Many consumers in one process of their own, so that their memory is not counted as anybody else's.

`python -m bench.crowd ADDRESS TOPIC CONSUMERS GROUPS` opens them and prints, each second, how many messages they have
received together; it ends when its standard input does.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from ortoo.client import ConsumerSettings, connect

SETTINGS = ConsumerSettings(from_first=True, unfinished_messages_max=8192, unfinished_bytes_max=4 << 20)


class Crowd:
    """What the consumers have received so far."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.messages = 0

    async def read(self, address: str, topic: str, group: str) -> None:
        """Consume for ever, with a connection of its own."""
        async with connect(address) as mq, mq.consumer(group, topic, SETTINGS) as consumer:
            async for batch in consumer.batches():
                self.messages += len(batch)
                batch.ack()


async def _serve(address: str, topic: str, consumers: int, groups: int) -> None:
    readers = Crowd()
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(readers.read(address, topic, f"group-{n % groups}")) for n in range(consumers)]
    ended = loop.run_in_executor(None, sys.stdin.buffer.read)
    while not ended.done():
        print(readers.messages, flush=True)
        await asyncio.wait([ended, *tasks], timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


class CrowdProcess:
    """The other process, seen from here."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Made by `reading`."""
        self.process_id = process.pid
        self._stdout = process.stdout

    async def received(self) -> int:
        """How many messages they have, as told about once a second; waits for the next telling."""
        assert self._stdout is not None
        line = await self._stdout.readline()
        if not line:
            raise RuntimeError("the readers ended")
        return int(line)


@contextlib.asynccontextmanager
async def reading(address: str, topic: str, consumers: int, groups: int) -> AsyncIterator[CrowdProcess]:
    """So many consumers, spread over so many groups, in a process of their own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.crowd", address, topic, str(consumers), str(groups)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield CrowdProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
