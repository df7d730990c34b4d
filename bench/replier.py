"""A process that replies to each request of the topic `requests`; it prints a line when it has its queues."""

import asyncio
import sys

from ortoo.client import ConsumerSettings, ReceivedMessage, connect


async def serve(address: str) -> None:
    """Reply until the process ends."""

    async def handle(message: ReceivedMessage) -> None:
        if message.request is None:
            print("ready", flush=True)
        else:
            await message.reply(message.body)

    settings = ConsumerSettings(from_beginning=True)
    async with connect(address) as mq, mq.consumer("bench", "requests", settings) as consumer:
        await consumer.run(handle, concurrency=16)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
