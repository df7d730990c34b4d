"""Edge cases of a client: cancelled in the middle, used after its end, interrupted."""

import asyncio
import logging
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ortoo.client import (
    Client,
    ClientClosed,
    ConsumerClosed,
    Invalid,
    PopSettings,
    ProducerSettings,
    PullSettings,
    Queue,
    ReceivedMessage,
    TransactionCheck,
    TransactionVerdict,
    Unavailable,
    blocking,
    connect,
)
from ortoo.client.produce.routes import query_placement
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster

CLOCK = SystemClock()
TURNS = (0, 1, 2, 3, 5, 8, 13, 21, 34)
"""Number of event loop turns after which a call is cancelled: before, during and after each of its waits."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    """One of each role, with the topic t of four queues."""
    async with open_cluster(tmp_path) as opened:
        await opened.create_topic("t")
        yield opened


async def called_off(work: Any, turns: int) -> Any:
    """Run `work` for `turns` turns of the event loop and cancel it; return its result if it was too late, or None."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work)
        for _ in range(turns):
            await CLOCK.sleep(0)
        task.cancel()
    return None if task.cancelled() else task.result()


async def test_a_consumer_whose_entering_is_called_off_is_no_member(cluster: InProcessCluster) -> None:
    """At any moment, the group has no ghost member; the same client joins it again at once."""
    async with asyncio.timeout(60), connect(cluster.address) as mq:
        for turns in TURNS:
            consumer = mq.pull_consumer("g", "t")
            if await called_off(consumer.__aenter__(), turns) is not None:
                await consumer.__aexit__(None, None, None)
        while await mq.admin.count_consumers("g"):
            await CLOCK.sleep(0.01)
        async with (
            mq.pull_consumer("g", "t", PullSettings(from_beginning=True)) as consumer,
            mq.producer("t") as producer,
        ):
            await producer.send(b"for the living")
            batch = await consumer.poll()
            assert batch is not None


async def test_a_pop_that_is_called_off_loses_no_message_for_its_lease(cluster: InProcessCluster) -> None:
    """The next pop returns the messages of the cancelled one, as their first attempt; leaving releases them."""
    settings = PopSettings(invisible_ms=600_000, wait_ms=5_000, messages_max=1)
    async with asyncio.timeout(60), connect(cluster.address) as mq, mq.producer("t") as producer:
        for turns in TURNS:
            await producer.send(b"%d" % turns)
            async with mq.pop_consumer("g", "t", settings=settings) as consumer:
                popped = await called_off(consumer.pop(), turns) or await consumer.pop()
                assert [(it.body, it.attempt) for it in popped] == [(b"%d" % turns, 1)]
                await popped[0].ack()
            await producer.send(b"again %d" % turns)
            async with mq.pop_consumer("g", "t", settings=settings) as consumer:
                await called_off(consumer.pop(), turns)
            async with mq.pop_consumer("g", "t", settings=settings) as consumer:
                popped = await consumer.pop()
                assert [it.body for it in popped] == [b"again %d" % turns]
                await popped[0].ack()


async def test_what_is_used_after_its_end_says_so(cluster: InProcessCluster) -> None:
    """Closed for a closed client, Left for a consumer that was left or not entered, before anything is done."""
    async with asyncio.timeout(60), connect(cluster.address) as mq:
        for consumer in (mq.consumer("g", "t"), mq.pull_consumer("g", "t")):
            with pytest.raises(ConsumerClosed, match="enter it"):
                await anext(aiter(consumer))
            async with asyncio.TaskGroup() as tasks, consumer:
                waiting = tasks.create_task(_all(consumer))
                await CLOCK.sleep(0)
            assert waiting.result() == []  # a running iteration ends with the consumer
            with pytest.raises(ConsumerClosed, match="make a new one"):
                await anext(aiter(consumer))
        popping = mq.pop_consumer("g", "t")
        with pytest.raises(ConsumerClosed):
            await popping.pop()
    later: list[Callable[[Client], Any]] = [
        lambda it: it.admin.list_topics(),
        lambda it: it.recall("x"),
        lambda it: it.producer("t").__aenter__(),
        lambda it: it.pull_consumer("g", "t").__aenter__(),
        lambda it: anext(aiter(it.fetch(Queue("t", "enode-0", 0)))),
    ]
    for use in later:
        with pytest.raises(ClientClosed, match="connect again"):
            async with asyncio.timeout(60):
                await use(mq)


async def _all(consumer: Any) -> list[ReceivedMessage]:
    return [message async for message in consumer]


async def test_the_blocking_client_is_closed_with_and_without_blocks(cluster: InProcessCluster) -> None:
    """`close` flushes and leaves like the end of a block, and may be called twice; later calls raise Closed."""

    def use() -> int:
        mq = blocking.connect(cluster.address)
        producer = mq.producer("t")
        consumer = mq.consumer("g", "t")
        with pytest.raises(Invalid):
            consumer.subscribe({})
        with pytest.raises(TimeoutError, match=r"0\.05 s"):
            mq.pop_consumer("other", "t").with_timeout(0.05).pop(wait_ms=10_000)
        receipt = producer.send(b"one")
        producer.close()
        producer.close()
        with pytest.raises(ClientClosed):
            producer.send(b"two")
        mq.close()
        mq.close()
        for late in (mq.admin.list_topics, lambda: consumer.stop(), lambda: next(iter(consumer))):
            with pytest.raises(ClientClosed):
                late()
        return receipt.offset

    async with asyncio.timeout(60):
        assert await asyncio.to_thread(use) == 0
    async with connect(cluster.address) as mq:
        assert await mq.admin.count_consumers("g") == 0


async def test_a_stop_before_the_run_ends_it(cluster: InProcessCluster) -> None:
    """The next run runs until it is stopped."""

    def use() -> list[bytes]:
        seen: list[bytes] = []
        with blocking.connect(cluster.address) as mq, mq.producer("t") as producer:
            consumer = mq.pop_consumer("g", "t")
            consumer.stop()
            consumer.run(lambda message: seen.append(message.body))
            producer.send(b"one")

            def handle(message: Any) -> None:
                seen.append(message.body)
                consumer.stop()

            consumer.run(handle)
        return seen

    async with asyncio.timeout(60):
        assert await asyncio.to_thread(use) == [b"one"]


PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from ortoo.client import blocking
with blocking.connect(sys.argv[1]) as mq, mq.producer("t") as producer:
    producer.send(b"one")
    with mq.{consumer} as consumer:
        print("ready", flush=True)
        for message in consumer:
            pass
"""


@pytest.mark.parametrize("consumer", ['consumer("g", "t")', 'pull_consumer("g", "t")', 'pop_consumer("g", "t")'])
async def test_an_interrupted_program_ends_as_python_programs_do(cluster: InProcessCluster, consumer: str) -> None:
    """Ctrl-C flushes, releases leases, and prints nothing but KeyboardInterrupt's own traceback."""

    def run() -> tuple[int, str]:
        program = PROGRAM.format(consumer=consumer)
        with subprocess.Popen(
            [sys.executable, "-c", program, cluster.address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
            try:
                said = process.communicate(timeout=30)[1]
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            return process.returncode, said

    status, said = await asyncio.to_thread(run)
    assert status in (-signal.SIGINT, 128 + signal.SIGINT)
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert said.count("Traceback") == 1
    assert "Event loop" not in said
    async with connect(cluster.address) as mq, asyncio.timeout(60):
        if "pop" in consumer:  # it is listed for a while after its last pop; no lease of it remains
            async with mq.pop_consumer("g", "t") as next_consumer:
                [message] = await next_consumer.pop(wait_ms=9_000)
                assert (message.body, message.attempt) == (b"one", 1)
            return
        while await mq.admin.count_consumers("g"):  # the snode may see the end of the program's calls a moment later
            await cluster.clock.sleep(0.01)


async def test_a_failed_handler_is_told_to_logging_with_all_that_finds_the_message(
    cluster: InProcessCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Topic, queue, offset, group and id, by the application's own `logging`."""

    async def handle(_: object) -> None:
        raise RuntimeError("no way")

    with caplog.at_level(logging.INFO):
        async with asyncio.timeout(60), connect(cluster.address) as mq, mq.producer("t") as producer:
            receipt = await producer.send(b"one")
            async with asyncio.TaskGroup() as tasks, mq.pop_consumer("g", "t") as consumer:
                running = tasks.create_task(consumer.run(handle))
                while not (told := [it for it in caplog.records if "handler_failed" in it.getMessage()]):
                    await CLOCK.sleep(0.01)
                running.cancel()
    line = told[0].getMessage()
    for part in ("group='g'", str(receipt.queue), f"offset={receipt.offset}", receipt.message_id):
        assert part in line
    assert told[0].name == "ortoo.consumer"
    assert told[0].exc_info is not None


@pytest.mark.parametrize("kind", ["producer", "transactional"])
async def test_a_producer_that_is_opened_while_the_enode_is_down_waits_for_it(
    cluster: InProcessCluster, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It opens as soon as the enode accepts messages, or ends with Unavailable after its time limit."""

    async def is_open() -> None:
        producer = mq.producer("t") if kind == "producer" else mq.transactional_producer("t", "g", _commit)
        async with producer:
            pass

    async with asyncio.timeout(60), connect(cluster.address) as impatient, connect(cluster.address) as mq:
        await cluster.close("enode-0")
        while (await query_placement(mq._connection, "t")).writable:
            await CLOCK.sleep(0.02)
        with pytest.raises(Unavailable, match="no enode of the topic 't' accepts messages now"):
            async with impatient.producer("t", ProducerSettings(delivery_timeout_ms=50)):
                pass
        caplog.clear()
        async with asyncio.TaskGroup() as tasks:
            opening = tasks.create_task(is_open())
            while not any("route_lookup_failed" in it.getMessage() for it in caplog.records):
                await CLOCK.sleep(0.01)
            assert not opening.done()
            await cluster.open_enode("enode-0")


async def _commit(_: TransactionCheck) -> TransactionVerdict:
    return TransactionVerdict.COMMIT
