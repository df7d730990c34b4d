"""Many consumers in one separate process, so that their memory is not counted with another process.

`python -m bench.crowd ADDRESS TOPIC CONSUMERS GROUPS` opens them and prints, each second, the number of messages they
have received together. It ends when its standard input does.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from ortoo.client import ConsumerSettings, connect

SETTINGS = ConsumerSettings(from_beginning=True, unacknowledged_messages_max=8192, unacknowledged_bytes_max=4 << 20)


class Crowd:
    """Counts the messages that the consumers have received."""

    def __init__(self) -> None:
        """Start with a count of zero."""
        self.messages = 0

    async def read(self, address: str, topic: str, group: str) -> None:
        """Consume until cancelled, over a connection of its own."""
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
    """The other process, seen from the benchmark."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Created by `reading`."""
        self.process_id = process.pid
        self._stdout = process.stdout

    async def received(self) -> int:
        """The number of messages received, at the next report; the process reports about once a second."""
        assert self._stdout is not None
        line = await self._stdout.readline()
        if not line:
            raise RuntimeError("the readers ended")
        return int(line)


@contextlib.asynccontextmanager
async def reading(address: str, topic: str, consumers: int, groups: int) -> AsyncIterator[CrowdProcess]:
    """Run `consumers` consumers, spread over `groups` groups, in a separate process."""
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
