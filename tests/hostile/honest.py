"""An honest client: sends, receives and acknowledges at an even pace, and reports each message's latency.

python -m tests.hostile.honest ADDRESS TOPIC

It runs in a separate process, so that latencies are the servers' and not the attackers'. It prints one line of JSON
every half second. It ends after its input is closed and all its messages have arrived.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator

from ortoo.client import ConsumerSettings, Message, connect
from ortoo.common.process.clock import SystemClock

PACE_S = 0.02
REPORT_S = 0.5
SETTLE_S = 30.0


class Flow:
    """Messages under way."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.sent_s: dict[bytes, float] = {}
        """The send time of each message that has not arrived, in monotonic seconds."""
        self.sent = 0
        self.arrived = 0
        self.errors: list[str] = []
        self.took_ms: list[float] = []
        """Latencies of the messages that arrived since the last report."""
        self.late_ms = 0.0
        """The largest delay of a sleep of this process since the last report: stalls of the machine itself."""
        self.everything = asyncio.Event()

    def report(self) -> str:
        """One line about the time since the last report."""
        took, self.took_ms = self.took_ms, []
        errors, self.errors = self.errors, []
        late_ms, self.late_ms = self.late_ms, 0.0
        counts = {"sent": self.sent, "arrived": self.arrived, "missing": len(self.sent_s), "late_ms": late_ms}
        return json.dumps({**counts, "took_ms": took, "errors": errors})


async def flow(address: str, topic: str, stop: asyncio.Event) -> AsyncIterator[Flow]:
    """Send until `stop` is set, then wait until all has arrived; yields at each report."""
    state = Flow()
    wanted = ConsumerSettings(from_beginning=True)
    async with connect(address) as mq, mq.producer(topic) as producer, mq.consumer("honest", topic, wanted) as consumer:

        async def send() -> None:
            while not stop.is_set():
                body = f"{state.sent}".encode()
                state.sent_s[body] = state.clock.monotonic_s()
                state.sent += 1
                try:
                    await producer.send(Message(body))
                except Exception as error:  # every failure of an honest client is a finding
                    state.errors.append(f"send: {error!r}")
                    del state.sent_s[body]
                slept_s = state.clock.monotonic_s()
                await state.clock.sleep(PACE_S)
                state.late_ms = max(state.late_ms, (state.clock.monotonic_s() - slept_s - PACE_S) * 1000)

        async def receive() -> None:
            async for message in consumer:
                begun_s = state.sent_s.pop(message.body, None)
                if begun_s is not None:
                    state.took_ms.append((state.clock.monotonic_s() - begun_s) * 1000)
                    state.arrived += 1
                message.ack()
                if stop.is_set() and not state.sent_s:
                    state.everything.set()

        sending, receiving = asyncio.create_task(send()), asyncio.create_task(receive())  # noqa: TID251  # it owns both
        while not stop.is_set():
            await state.clock.sleep(REPORT_S)
            yield state
        await sending
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                while state.sent_s:
                    await state.everything.wait()
        receiving.cancel()
        yield state


async def main(address: str, topic: str) -> None:
    """Run until the input is closed."""
    stop = asyncio.Event()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def until_closed() -> None:
        await reader.read()
        stop.set()

    closing = asyncio.create_task(until_closed())  # noqa: TID251  # awaited below
    async for state in flow(address, topic, stop):
        print(state.report(), flush=True)  # noqa: T201  # its answer to whoever started it
    await closing


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
