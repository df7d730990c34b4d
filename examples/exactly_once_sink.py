"""A sink that writes each message of a topic into a database exactly once.

    pip install ortoo
    python exactly_once_sink.py payments payments.sqlite

Delivery is at least once: after a crash, a consumer gets messages again. The sink stores the next offset of each queue
in the database, in the transaction that stores the rows. Rows before that offset are in the database already, so they
are skipped. The committed offset of the group only decides where a restart begins to read.

Stop the sink with `kill -9` as often as you like, or start several of them: the table has each message once. A queue is
named with its topic id, so a topic that is deleted and created again starts at its first message.
"""

import asyncio
import sqlite3
import sys

from ortoo.client import ConsumerSettings, ReceivedBatch, connect

TABLES = """
    create table if not exists payments (body text not null);
    create table if not exists progress (
        topic_id text, enode text, queue_id integer, next_offset integer not null,
        primary key (topic_id, enode, queue_id)
    );
"""
STORED = "select next_offset from progress where (topic_id, enode, queue_id) = (?, ?, ?)"


def store(database: sqlite3.Connection, batch: ReceivedBatch) -> int:
    """Store the new rows of a batch with the next offset of its queue; returns the number of new rows."""
    queue = (str(batch.topic_id), batch.queue.enode, batch.queue.queue_id)
    with database:
        database.execute("begin immediate")  # the other sinks wait, so that none of them uses an outdated offset
        known = database.execute(STORED, queue).fetchone()
        first = known[0] if known else 0
        rows = [(message.body.decode(),) for message in batch if message.offset >= first]
        if batch.next_offset > first:
            database.executemany("insert into payments values (?)", rows)
            database.execute("insert or replace into progress values (?, ?, ?, ?)", (*queue, batch.next_offset))
    return len(rows)


async def main(topic: str, path: str) -> None:
    """Store batches until the process is stopped."""
    database = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    database.executescript(TABLES)
    settings = ConsumerSettings(from_beginning=True)
    async with connect() as mq:
        await mq.admin.ensure_topic(topic)
        async with mq.consumer("sink", topic, settings) as consumer:
            async for batch in consumer.batches():
                stored = await asyncio.to_thread(store, database, batch)
                batch.ack()
                print("stored", stored, "of", len(batch), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
