"""A transactional outbox: an order and its message are stored by one transaction of PostgreSQL.

    pip install ortoo 'psycopg[binary]'
    createdb shop
    export DATABASE_URL=postgresql://localhost/shop
    python outbox.py relay &
    python outbox.py place o-1 4200

A program that commits to a database and then sends a message may crash between both steps. Here `place` writes the
message into the table `outbox`, in the transaction of the order. `relay` moves messages from the table to their topic.

The relay may crash after a send and before its commit. It then sends the message again, with the same dedup id, and the
enode stores nothing. Enodes remember dedup ids for ten minutes. If all relays stop for longer, consumers may get a
message twice. Several relays may run: one of them works, and the others wait.
"""

import asyncio
import json
import os
import sys

from psycopg import AsyncConnection

from ortoo.client import Message, Producer, connect

TOPIC = "orders"
TABLES = """
    create table if not exists orders (number text primary key, cents bigint not null);
    create table if not exists outbox (
        id bigint generated always as identity primary key, key text not null, body text not null
    );
"""
LOCK = "select pg_advisory_xact_lock(hashtext('outbox'))"
WAITING = "select id, key, body from outbox order by id limit 100"
POLL_INTERVAL_S = 5.0
"""New rows are announced by NOTIFY. The poll finds rows whose announcement was lost."""


async def place(database: AsyncConnection, number: str, cents: int) -> None:
    """Store an order together with its message. Errors: UniqueViolation, which stores neither."""
    async with database.transaction():
        await database.execute("insert into orders values (%s, %s)", (number, cents))
        body = json.dumps({"number": number, "cents": cents})
        await database.execute("insert into outbox (key, body) values (%s, %s)", (number, body))
        await database.execute("notify outbox")


async def relay(database: AsyncConnection, producer: Producer) -> None:
    """Move messages from the outbox to the topic until this task is cancelled."""
    await database.execute("listen outbox")
    while True:
        while await move(database, producer):
            pass
        async for _ in database.notifies(timeout=POLL_INTERVAL_S, stop_after=1):
            pass


async def move(database: AsyncConnection, producer: Producer) -> int:
    """Send the first messages of the outbox and delete their rows; returns the number of messages."""
    async with database.transaction():
        await database.execute(LOCK)
        rows = await (await database.execute(WAITING)).fetchall()
        for identity, key, body in rows:
            message = Message(body.encode(), keys=(key,), message_group=key)  # in order for each order
            await producer.send_once(message, f"outbox-{identity}")
        await database.execute("delete from outbox where id = any(%s)", ([row[0] for row in rows],))
    return len(rows)


async def main(command: str, *arguments: str) -> None:
    """Run one command."""
    async with await AsyncConnection.connect(os.environ["DATABASE_URL"], autocommit=True) as database:
        await database.execute(TABLES)
        if command == "place":
            number, cents = arguments
            await place(database, number, int(cents))
        else:
            async with connect() as mq:
                await mq.admin.ensure_topic(TOPIC)
                async with mq.producer(TOPIC) as producer:
                    await relay(database, producer)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
