"""`ortoo send` and `ortoo tail`."""

import asyncio
import signal
import sys
from collections.abc import Sequence

from ortoo.cli.commands.delays import milliseconds_of
from ortoo.cli.terminal.output import message_fields, print_json
from ortoo.client import Filter, Invalid, Message, Receipt, Sql, StoredMessage, connect
from ortoo.common.process.clock import SystemClock

LAST_MESSAGES = 10
CHUNK_LINES = 4096


async def send(
    addresses: Sequence[str],
    topic: str,
    body: str | None,
    *,
    tag: str | None,
    keys: Sequence[str],
    pairs: Sequence[str],
    group: str | None,
    delay: str | None,
    expire: str | None,
    dedup_id: str | None,
    priority: int | None,
    as_json: bool,
) -> None:
    """Send one message, or each line of standard input, and print where it is stored."""
    if dedup_id is not None and body is None:
        raise Invalid("one id is of one message; give the body", field="--dedup-id")
    properties = _properties(pairs)
    clock = SystemClock()
    delay_ms = milliseconds_of(delay) if delay is not None else None
    life_ms = milliseconds_of(expire) if expire is not None else None

    def message(content: bytes) -> Message:
        now_ms = clock.now_ms()
        return Message(
            content,
            tag,
            tuple(keys),
            message_group=group,
            properties=properties,
            deliver_at_ms=now_ms + delay_ms if delay_ms is not None else None,
            expire_at_ms=now_ms + (delay_ms or 0) + life_ms if life_ms is not None else None,
            priority=priority,
        )

    async with connect(addresses) as mq, mq.producer(topic) as producer:
        if body is not None and dedup_id is not None:
            _print_receipt(await producer.send_once(message(body.encode()), dedup_id), as_json=as_json)
            return
        if body is not None:
            _print_receipt(await producer.send(message(body.encode())), as_json=as_json)
            return
        count = 0
        while lines := await asyncio.to_thread(sys.stdin.buffer.readlines, 1 << 20):
            contents = [content for line in lines if (content := line.rstrip(b"\r\n"))]
            receipts = await (await producer.send_many([message(content) for content in contents]))
            count += len(receipts)
            if as_json:
                for receipt in receipts:
                    _print_receipt(receipt, as_json=True)
        if not as_json:
            print(f"sent {count} messages")


async def tail(
    addresses: Sequence[str],
    topic: str,
    *,
    from_first: bool,
    count: int | None,
    follow: bool,
    wanted: Filter,
    as_json: bool,
) -> None:
    """Print stored messages, then those that come, until `count` are printed or Ctrl-C."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    printed = 0
    try:
        async with connect(addresses) as mq:
            source = (
                mq.admin.tail(topic, from_first=True, follow=follow, wanted=wanted)
                if from_first
                else mq.admin.tail_last(topic, LAST_MESSAGES, follow=follow, wanted=wanted)
            )
            async for stored in source:
                _print_message(stored, as_json=as_json)
                printed += 1
                if printed == count:
                    return
    except asyncio.CancelledError:
        pass  # Ctrl-C is how a tail ends


def wanted(tags: str, sql: str | None) -> Filter:
    """The filter that options ask for. Errors: Invalid when both are given."""
    if sql is None:
        return tags
    if tags != "*":
        raise Invalid("give --tags or --sql; in SQL the tag is TAGS", field="sql")
    return Sql(sql)


def _properties(pairs: Sequence[str]) -> dict[str, str]:
    properties = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise Invalid(f"{pair!r}; expected NAME=VALUE", field="property")
        properties[name] = value
    return properties


def _print_receipt(receipt: Receipt, *, as_json: bool) -> None:
    if as_json:
        print_json(receipt)
    else:
        queue = receipt.queue
        if receipt.recall_handle:
            print(f"delayed {receipt.message_id}; to cancel: ortoo delay cancel {receipt.recall_handle}")
            return
        print(f"stored {receipt.message_id} in queue {queue.queue_id} of {queue.enode} at offset {receipt.offset}")


def _print_message(stored: StoredMessage, *, as_json: bool) -> None:
    if as_json:
        print_json(message_fields(stored))
    else:
        print(stored.message.body.decode(errors="backslashreplace"), flush=True)
