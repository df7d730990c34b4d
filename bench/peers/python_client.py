"""Ortoo's client and librdkafka under the same loads: `python -m bench.peers.python_client BODY_BYTES`.

Each line on standard input is a command: SYSTEM WAY ADDRESS TOPIC SECONDS [RATE]. The answer has the format that
`bench.peers.load` reads. Each client has the settings that its guide gives for throughput or latency, and Kafka's has
`acks=all`.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from bench.percentiles import latency_figures
from bench.report import Figures
from bench.traffic import ticks
from bench.workload import Bodies, BodyPool
from ortoo.client import ConsumerSettings, connect

WARM_UP_S = 1.0
CHUNK_MESSAGES = 8_192
POOL_BODIES = 65_536
TASKS = 1_000
Way = Callable[[str, str, float, float, BodyPool], Coroutine[Any, Any, Figures]]


def begin() -> float:
    """Report that counting begins; the time of that."""
    print("begin", flush=True)
    return time.perf_counter()


def rate(messages: int, began: float) -> Figures:
    """Messages a second since `began`."""
    return {"messages": messages, "per_s": round(messages / (time.perf_counter() - began))}


def stopping(seconds: float) -> Callable[[], bool]:
    """A function that tells whether `seconds` have passed."""
    stop_at = time.perf_counter() + seconds
    return lambda: time.perf_counter() >= stop_at


# ------------------------------------------------------------------------------------------------------------ Ortoo


async def ortoo_many(address: str, topic: str, seconds: float, _: float, bodies: BodyPool) -> Figures:
    """`send_many` of lists of bodies, then `flush`."""
    async with connect(address) as mq, mq.producer(topic) as producer:

        async def send(lasts_s: float) -> int:
            is_over, sent = stopping(lasts_s), 0
            while not is_over():
                await producer.send_many(bodies.take(CHUNK_MESSAGES))
                sent += CHUNK_MESSAGES
            await producer.flush()
            return sent

        await send(WARM_UP_S)
        began = begin()
        return rate(await send(seconds), began)


async def ortoo_each(address: str, topic: str, seconds: float, _: float, bodies: BodyPool) -> Figures:
    """`enqueue` of each body, then `flush`."""
    async with connect(address) as mq, mq.producer(topic) as producer:

        async def send(lasts_s: float) -> int:
            is_over, sent = stopping(lasts_s), 0
            while not is_over():
                for body in bodies.take(CHUNK_MESSAGES):
                    await producer.enqueue(body)
                sent += CHUNK_MESSAGES
            await producer.flush()
            return sent

        await send(WARM_UP_S)
        began = begin()
        return rate(await send(seconds), began)


async def ortoo_tasks(address: str, topic: str, seconds: float, _: float, bodies: BodyPool) -> Figures:
    """Many tasks that each `await send`, one message after another."""
    async with connect(address) as mq, mq.producer(topic) as producer:

        async def send(body: bytes) -> None:
            await producer.send(body)

        await by_tasks(send, WARM_UP_S, bodies)
        began = begin()
        return rate(await by_tasks(send, seconds, bodies), began)


async def ortoo_read(address: str, topic: str, seconds: float, _: float, bodies: BodyPool) -> Figures:
    """A consumer that reads each stored body and acknowledges."""
    async with connect(address) as mq:
        queues = (await mq.admin.describe_topic(topic)).queues
        ends = {one.queue: one.end_offset for one in queues if one.end_offset > one.begin_offset}
        group = f"read-{time.time_ns()}"
        async with mq.consumer(group, topic, ConsumerSettings(from_beginning=True)) as consumer:
            began, last, count = 0.0, 0.0, 0
            async for batch in consumer.batches():
                read = len(batch.bodies())
                batch.ack()
                last = time.perf_counter()
                if batch.offset(len(batch) - 1) + 1 == ends.get(batch.queue):  # retention may delete: no count
                    del ends[batch.queue]
                if not began:
                    began = begin()
                    continue
                count += read
                if not ends or last - began >= seconds:
                    break
            return {"messages": count, "per_s": round(count / (last - began))}


async def ortoo_steady(address: str, topic: str, seconds: float, per_s: float, bodies: BodyPool) -> Figures:
    """Delays from the planned send to its acknowledgement, at a steady rate."""
    delays: list[float] = []
    async with connect(address) as mq, mq.producer(topic) as producer:

        async def one(body: bytes, planned: float) -> None:
            await producer.send(body)
            delays.append(time.perf_counter() - planned)

        async def send(lasts_s: float) -> int:
            sent = bodies.take(int(per_s * lasts_s))
            async with asyncio.TaskGroup() as group:
                at = iter(sent)
                async for planned in ticks(per_s, len(sent)):
                    group.create_task(one(next(at), planned))
            return len(sent)

        await send(WARM_UP_S)
        delays.clear()
        begin()
        return {"messages": await send(seconds), **latency_figures(delays)}


async def by_tasks(send: Callable[[bytes], Awaitable[None]], seconds: float, bodies: BodyPool) -> int:
    """The number of messages that a thousand tasks sent, each awaiting one answer at a time."""
    is_over, sent = stopping(seconds), 0

    async def one_after_another() -> None:
        nonlocal sent
        while not is_over():
            await send(bodies.take(1)[0])
            sent += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(TASKS):
            group.create_task(one_after_another())
    return sent


# ------------------------------------------------------------------------------------------------------------ Kafka


THROUGHPUT = {"linger.ms": 50, "delivery.report.only.error": True}
"""Larger batches, and no report of each success. The guide of librdkafka advises more than 50 ms for throughput."""

READ_END_S = 2.0
"""A reader that gets nothing for this time has reached the end. The time does not count."""
WITHOUT_PAUSES = {"fetch.queue.backoff.ms": 1}
"""For a fast reader. By default librdkafka stops fetching for a second when its queue holds 100,000 messages."""


def kafka_producer(address: str, **more: object) -> Any:
    """librdkafka; a message that is not delivered ends the measurement."""
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": address, "acks": "all", **more})


def refuse(error: object, message: object) -> None:
    """A delivery report of a failed message. Errors: RuntimeError."""
    if error is not None:
        raise RuntimeError(f"not delivered: {error}")


async def kafka_many(address: str, topic: str, seconds: float, _: float, bodies: BodyPool) -> Figures:
    """`produce_batch` of lists, then `flush`."""
    producer = kafka_producer(address, **THROUGHPUT)

    def send(lasts_s: float) -> int:
        is_over, sent = stopping(lasts_s), 0
        while not is_over():
            messages = [{"value": body} for body in bodies.take(CHUNK_MESSAGES)]
            while messages:
                producer.produce_batch(topic, messages, on_delivery=refuse)
                messages = [one for one in messages if "_error" in one]  # its queue is full
                for one in messages:
                    del one["_error"]
                producer.poll(0.005 if messages else 0)
            sent += CHUNK_MESSAGES
        assert producer.flush() == 0
        return sent

    send(WARM_UP_S)
    began = begin()
    return rate(send(seconds), began)


async def kafka_each(address: str, topic: str, seconds: float, _: float, bodies: BodyPool) -> Figures:
    """`produce` of each body, then `flush`."""
    producer = kafka_producer(address, **THROUGHPUT)

    def send(lasts_s: float) -> int:
        is_over, sent = stopping(lasts_s), 0
        while not is_over():
            for body in bodies.take(CHUNK_MESSAGES):
                while True:
                    try:
                        producer.produce(topic, body, on_delivery=refuse)
                        break
                    except BufferError:
                        producer.poll(0.005)
            producer.poll(0)
            sent += CHUNK_MESSAGES
        assert producer.flush() == 0
        return sent

    send(WARM_UP_S)
    began = begin()
    return rate(send(seconds), began)


async def kafka_tasks(address: str, topic: str, seconds: float, _: float, bodies: BodyPool) -> Figures:
    """Many tasks that each await `AIOProducer.produce` and then its answer, one message after another."""
    from confluent_kafka.aio import AIOProducer

    conf = {"bootstrap.servers": address, "acks": "all"}
    # The default waits for 1,000 messages or a second, so that a thousand tasks get 1,000 answers a second.
    producer: Any = AIOProducer(conf, batch_size=TASKS // 10, buffer_timeout=0.005)

    async def send(body: bytes) -> None:
        await (await producer.produce(topic, body))

    try:
        await by_tasks(send, WARM_UP_S, bodies)
        began = begin()
        return rate(await by_tasks(send, seconds, bodies), began)
    finally:
        await producer.close()


async def kafka_read(address: str, topic: str, seconds: float, _: float, bodies: BodyPool) -> Figures:
    """A consumer that reads each stored value, with its automatic commits."""
    from confluent_kafka import Consumer, TopicPartition

    group = f"read-{time.time_ns()}"
    settings = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"}
    consumer: Any = Consumer(settings | WITHOUT_PAUSES)
    partitions = consumer.list_topics(topic).topics[topic].partitions
    stored_offsets = [consumer.get_watermark_offsets(TopicPartition(topic, one)) for one in partitions]
    end = sum(high - low for low, high in stored_offsets)
    consumer.subscribe([topic])
    began, last, count = 0.0, 0.0, 0
    while True:
        bodies_read = [message.value() for message in consumer.consume(CHUNK_MESSAGES, 0.1)]
        if not bodies_read and began and time.perf_counter() - last > READ_END_S:
            break  # retention has deleted some of the messages
        if not bodies_read:
            continue
        last = time.perf_counter()
        if not began:
            began = begin()
            end -= len(bodies_read)
            continue
        count += len(bodies_read)
        if count >= end or last - began >= seconds:
            break
    consumer.close()
    return {"messages": count, "per_s": round(count / (last - began))}


async def kafka_steady(address: str, topic: str, seconds: float, per_s: float, bodies: BodyPool) -> Figures:
    """Delays from the planned send to its acknowledgement, at a steady rate; the client does not linger."""
    producer = kafka_producer(address, **{"linger.ms": 0})
    delays: list[float] = []

    def send(lasts_s: float) -> int:
        sent = bodies.take(int(per_s * lasts_s))
        started = time.perf_counter()
        for number, body in enumerate(sent):
            planned = started + number / per_s
            while (wait := planned - time.perf_counter()) > 0:
                producer.poll(wait)

            def note(error: object, message: object, planned: float = planned) -> None:
                refuse(error, message)
                delays.append(time.perf_counter() - planned)

            producer.produce(topic, body, on_delivery=note)
        assert producer.flush() == 0
        return len(sent)

    send(WARM_UP_S)
    delays.clear()
    begin()
    return {"messages": send(seconds), **latency_figures(delays)}


WAYS: dict[str, Way] = {
    "ortoo many": ortoo_many, "ortoo each": ortoo_each, "ortoo tasks": ortoo_tasks, "ortoo read": ortoo_read,
    "ortoo steady": ortoo_steady, "kafka many": kafka_many, "kafka each": kafka_each, "kafka tasks": kafka_tasks,
    "kafka read": kafka_read, "kafka steady": kafka_steady,
}  # fmt: skip


def main() -> None:
    """Execute commands until standard input ends."""
    bodies = BodyPool(Bodies(int(sys.argv[1])), POOL_BODIES)
    print("end {}", flush=True)
    for line in sys.stdin:
        system, way, address, topic, seconds, *per_s = line.split()
        measure = WAYS[f"{system} {way}"]
        try:
            figures = asyncio.run(measure(address, topic, float(seconds), float(*per_s or ["0"]), bodies))
        except Exception as error:
            print(f"failed {line.strip()}: {error!r}", flush=True)
            raise
        print(f"end {json.dumps(figures)}", flush=True)


if __name__ == "__main__":
    main()
