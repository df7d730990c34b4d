"""The demo's journey: publish every flight, consume with two groups, kill two processes, count what arrived."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path

from ortoo.cli.demo.flights import FLIGHTS, UNITED, data_file, messages
from ortoo.cli.demo.progress import FlightProgress
from ortoo.cli.demo.role_process import RoleProcess, free_addresses
from ortoo.cli.demo.summary import Outcome
from ortoo.cli.demo.tally import GroupTally, content_hash
from ortoo.client import ConsumerSettings, Message, connect
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock, SystemClock

TOPIC = "flights"
QUEUES = 8
CHUNK_MESSAGES = 2_000
PATIENCE_S = 60.0
"""How long nothing may arrive before the rest is called lost."""


class Journey:
    """One run of the demo, in one folder."""

    def __init__(self, folder: Path, *, kill: bool, clock: Clock | None = None) -> None:
        """Keep stores and logs in `folder`; with `kill`, end the snode and the enode by SIGKILL on the way."""
        self._folder = folder
        self._kill = kill
        self._clock = clock or SystemClock()
        self._tallies = (GroupTally("delays"), GroupTally("united"))
        self._sent: Counter[bytes] = Counter()
        self._sent_united: Counter[bytes] = Counter()
        self._body_bytes = 0
        self._kills: list[str] = []
        self._namesrv_address = ""
        self._tls_address = ""

    async def run(self) -> Outcome:
        """Do it all. Errors: NotFound without the data, Unavailable when a process does not start."""
        flights = data_file()
        async with AsyncExitStack() as stack:
            namesrv, enode, snode = [await self._start(stack, role) for role in ("namesrv", "enode", "snode")]
            mq = await stack.enter_async_context(connect(snode.address))
            await mq.admin.create_topic(TOPIC, queue_count=QUEUES)
            background = await stack.enter_async_context(Background("demo"))
            progress = stack.enter_context(FlightProgress(FLIGHTS))
            progress.say(f"clients reach the snode at {snode.address}, by TLS at {self._tls_address}")
            for tally, tags in zip(self._tallies, ("*", UNITED), strict=True):
                for _ in range(2):
                    background.spawn(tally.group, self._consume(snode.address, tally, tags))
            began_s = self._clock.monotonic_s()
            killing: list[asyncio.Task[None]] = []
            async with mq.producer(TOPIC) as producer:
                source = messages(flights)
                while chunk := list(islice(source, CHUNK_MESSAGES)):
                    self._note(chunk)
                    await producer.send_many(chunk)
                    progress.sent(self._sent.total())
                    for share, role in ((1, snode), (2, enode)):
                        if self._kill and len(killing) < share <= 3 * self._sent.total() // FLIGHTS:
                            killing.append(background.spawn("kill", self._kill_and_restart(role, progress)))
                await producer.flush()
            await asyncio.gather(*killing)
            await self._all_arrived(progress)
            seconds = self._clock.monotonic_s() - began_s
            description = await mq.admin.describe_topic(TOPIC)
            stored = sum(queue.end_offset - queue.begin_offset for queue in description.queues)
            for process in (snode, enode, namesrv):
                stack.push_async_callback(process.stop)
        expected = (self._sent, self._sent_united)
        verdicts = tuple(tally.verdict(want) for tally, want in zip(self._tallies, expected, strict=True))
        sent = self._sent.total()
        return Outcome(sent, stored, self._body_bytes, seconds, tuple(self._kills), verdicts, FLIGHTS)

    async def _start(self, stack: AsyncExitStack, role: str) -> RoleProcess:
        environ = {} if role == "snode" else {"DATA_DIR": str(self._folder / role)}
        if role != "namesrv":
            environ["NAMESRV_ADDRESS"] = self._namesrv_address
        if role == "snode":
            [self._tls_address] = free_addresses(1)
            environ["TLS_LISTEN_ADDRESS"] = self._tls_address
        process = RoleProcess(role, environ, self._folder / f"{role}.log")
        stack.push_async_callback(process.kill)
        await process.start()
        if role == "namesrv":
            self._namesrv_address = process.address
        return process

    def _note(self, chunk: list[Message]) -> None:
        for message in chunk:
            content = content_hash(message.body, message.tag, tuple(message.keys))
            self._sent[content] += 1
            if message.tag == UNITED:
                self._sent_united[content] += 1
            self._body_bytes += len(message.body)

    async def _consume(self, address: str, tally: GroupTally, tags: str) -> None:
        settings = ConsumerSettings(from_first=True)
        async with connect(address) as mq, mq.consumer(tally.group, {TOPIC: tags}, settings) as consumer:
            async for batch in consumer.batches():
                queue = batch.queue
                for offset, message in zip(batch.offsets, batch.messages(), strict=True):
                    content = content_hash(message.body, message.tag, tuple(message.keys))
                    tally.received((queue.topic, queue.enode, queue.queue_id, offset), content)
                batch.ack()
                tally.changed.set()

    async def _kill_and_restart(self, role: RoleProcess, progress: FlightProgress) -> None:
        await role.kill()
        self._kills.append(role.role)
        progress.say(f"killed the {role.role} (SIGKILL) after {self._sent.total():,} flights")
        await role.start()
        progress.say(f"the {role.role} is back")

    async def _all_arrived(self, progress: FlightProgress) -> None:
        """Wait until both groups have everything, or nothing comes any more."""
        for tally, wanted in zip(self._tallies, (self._sent, self._sent_united), strict=True):
            while tally.delivered < wanted.total():
                tally.changed.clear()
                progress.delivered([tally.delivered for tally in self._tallies])
                try:
                    async with asyncio.timeout(PATIENCE_S):
                        await tally.changed.wait()
                except TimeoutError:
                    return
        progress.delivered([tally.delivered for tally in self._tallies])
