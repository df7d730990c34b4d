"""`ortoo send`, `ortoo tail`, `ortoo probe` and `ortoo message`."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from ortoo.cli.terminal.command import Commands, GroupName, TopicName
from ortoo.cli.terminal.completion import complete_enodes
from ortoo.cli.terminal.output import (
    Columns,
    CommandOutput,
    OutputTable,
    body_fields,
    body_start,
    message_fields,
    text_of_time,
    when_unread,
)
from ortoo.cli.terminal.printing import print_note
from ortoo.cli.terminal.targets import target_of, time_of
from ortoo.cli.terminal.values import milliseconds_of, properties_of
from ortoo.common.errors import DataLoss, Invalid, NotFound
from ortoo.common.logs.counts import counted
from ortoo.common.machine.printable import printable_line
from ortoo.common.process.clock import SystemClock

if TYPE_CHECKING:
    from ortoo.client import Client, Filter, FoundMessages, Receipt, StoredMessage

T = TypeVar("T")
INPUT_BYTES = 1 << 20
LAST_MESSAGES = 10
PROBE_TAG = "ortoo-probe"


class ProbeResult(NamedTuple):
    """One probe message: its queue and offset, and the durations of sending and reading it."""

    enode: str
    queue_id: int
    offset: int
    stored_ms: float
    """The time from the send to its receipt."""
    read_ms: float
    """The time from the receipt until the message was read."""


async def send(
    mq: "Client",
    topic: TopicName,
    body: Annotated[
        str | None, typer.Argument(help="The body; without it or with -, each line of standard input.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="The tag, for filters.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A key, for searches; may be given several times.")] = None,
    prop: Annotated[list[str] | None, typer.Option("--property", help="NAME=VALUE; several times.")] = None,
    group: Annotated[str | None, typer.Option(help="The message group, whose messages keep their order.")] = None,
    delay: Annotated[str | None, typer.Option(help="Delay of the delivery, such as 500ms, 90s, 15m, 2h, 30d.")] = None,
    expire: Annotated[str | None, typer.Option(help="Time after which the message is no longer delivered.")] = None,
    dedup_id: Annotated[
        str | None, typer.Option(help="Dedup id: of messages with the same id, only the first is stored.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(min=0, help="The priority, for topics of type priority; larger is more urgent.")
    ] = None,
) -> AsyncIterator[CommandOutput]:
    """Send a message, or every line of standard input."""
    from ortoo.client import Message

    if dedup_id is not None and body in (None, "-"):
        raise Invalid("a dedup id is for one message; give its body", field="--dedup-id")
    properties = properties_of(prop or [])
    clock = SystemClock()
    delay_ms = milliseconds_of(delay) if delay is not None else None
    life_ms = milliseconds_of(expire) if expire is not None else None

    def message(content: bytes) -> Message:
        now_ms = clock.now_ms()
        return Message(
            content,
            tag,
            tuple(key or ()),
            message_group=group,
            properties=properties,
            deliver_at_ms=now_ms + delay_ms if delay_ms is not None else None,
            expire_at_ms=now_ms + (delay_ms or 0) + life_ms if life_ms is not None else None,
            priority=priority,
        )

    async with mq.producer(topic) as producer:
        if body is not None and dedup_id is not None:
            yield _receipt_output(await producer.send_once(message(body.encode()), dedup_id))
            return
        if body not in (None, "-"):
            yield _receipt_output(await producer.send(message(body.encode())))
            return
        count = 0
        async for lines in lines_of(partial(os.read, sys.stdin.fileno())):
            contents = [content for line in lines if (content := line.rstrip(b"\r"))]
            receipts = await (await producer.send_many([message(content) for content in contents]))
            count += len(receipts)
            yield CommandOutput(receipts)
        yield CommandOutput((), f"sent {counted(count, 'message')}")


async def lines_of(read: Callable[[int], bytes]) -> AsyncIterator[list[bytes]]:
    """The lines of an input as they arrive, without line ends. `read` waits for bytes; b"" means the end of input."""
    partial_line = b""
    while chunk := await asyncio.to_thread(read, INPUT_BYTES):
        *lines, partial_line = (partial_line + chunk).split(b"\n")
        yield lines
    yield [partial_line]


async def tail(
    mq: "Client",
    topic: TopicName,
    from_beginning: Annotated[bool, typer.Option("--from-first", help="Begin with the oldest message.")] = False,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Begin at an offset of each queue, at a time such as 2026-01-31T12:00:00Z, at begin or at end.",
        ),
    ] = None,
    last: Annotated[int, typer.Option(min=0, help="Begin with this number of the newest messages.")] = LAST_MESSAGES,
    count: Annotated[int | None, typer.Option("-n", min=1, help="Stop after this number of messages.")] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Show the time, the place, the tag, the keys and the properties too.")
    ] = False,
    follow: Annotated[bool, typer.Option(help="Continue with new messages.")] = True,
    tags: Annotated[str, typer.Option(help="Only messages with one of these tags, such as 'a || b'.")] = "*",
    sql: Annotated[str | None, typer.Option(help='Only messages that match, such as "amount > 100".')] = None,
) -> AsyncIterator[CommandOutput]:
    """Show the last 10 messages, then new ones until Ctrl-C."""
    if begin is not None and from_beginning:
        raise Invalid("expected only one of --from and --from-first", field="--from")
    filter = _filter_of(tags, sql)
    if unreachable := (await mq.admin.describe_topic(topic)).unreachable_enodes:
        print_note(f"enodes that cannot be reached, so their messages are missing: {', '.join(unreachable)}")
    if from_beginning:
        source = mq.admin.tail(topic, from_beginning=True, follow=follow, filter=filter)
    elif begin is not None:
        source = mq.admin.tail_from(topic, **target_of(begin, "--from"), follow=follow, filter=filter)
    else:
        source = mq.admin.tail_last(topic, last, follow=follow, filter=filter)
    printed = 0
    async for stored in _until_interrupted(source):
        line = _details(stored) if details else stored.message.body.decode(errors="backslashreplace")
        yield CommandOutput(message_fields(stored), line)
        printed += 1
        if printed == count:
            return


async def consume(
    mq: "Client",
    group: GroupName,
    topic: TopicName,
    count: Annotated[int | None, typer.Option("-n", min=1, help="Stop after this number of messages.")] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-first", help="A group without offsets begins with the oldest message.")
    ] = False,
    tags: Annotated[str, typer.Option(help="Only messages with one of these tags, such as 'a || b'.")] = "*",
    sql: Annotated[str | None, typer.Option(help='Only messages that match, such as "amount > 100".')] = None,
) -> AsyncIterator[CommandOutput]:
    """Consume messages as a member of a group until Ctrl-C. Each message is acknowledged when it has been printed.

    A group without offsets begins with messages that are sent from now on, unless --from-first is given.
    """
    from ortoo.client import ConsumerSettings

    settings, printed = ConsumerSettings(from_beginning=from_beginning), 0
    async with mq.consumer(group, {topic: _filter_of(tags, sql)}, settings) as consumer:
        async for received in _until_interrupted(aiter(consumer)):
            fields: dict[str, object] = {
                "message_id": received.message_id,
                "topic": received.queue.topic,
                "enode": received.queue.enode,
                "queue_id": received.queue.queue_id,
                "offset": received.offset,
                "tag": received.tag,
                "keys": list(received.keys),
                "properties": dict(received.properties),
            }
            yield CommandOutput(fields | body_fields(received.body), received.body.decode(errors="backslashreplace"))
            received.ack()
            printed += 1
            if printed == count:
                return


async def _until_interrupted(source: AsyncIterator[T]) -> AsyncIterator[T]:
    """The items of `source` until Ctrl-C or SIGTERM.

    Errors: BrokenPipeError when the reader of the output has ended.
    """
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    unread = asyncio.Event()

    def no_longer_read() -> None:
        unread.set()
        task.cancel()

    when_unread(no_longer_read)
    try:
        async for item in source:
            yield item
    except asyncio.CancelledError:  # the normal end, by Ctrl-C
        task.uncancel()
        if unread.is_set():
            raise BrokenPipeError from None


def _details(stored: "StoredMessage") -> str:
    """One line about a message, with its body at the end."""
    message, queue = stored.message, stored.queue
    parts = [text_of_time(stored.stored_at_ms), f"{queue.enode}/{queue.queue_id}@{stored.offset}"]
    parts += [f"tag={message.tag}"] if message.tag else []
    parts += [f"keys={','.join(message.keys)}"] if message.keys else []
    parts += [f"{name}={value}" for name, value in message.properties.items()]
    return printable_line(f"{' '.join(parts)} | {message.body.decode(errors='backslashreplace')}")


async def probe(
    mq: "Client",
    topic: TopicName,
    count: Annotated[int, typer.Option("-n", min=1, max=1000, help="Number of messages, sent one after another.")] = 4,
    tag: Annotated[str, typer.Option(help="The messages' tag, with which groups can filter them out.")] = PROBE_TAG,
) -> CommandOutput:
    """Send messages to a topic, read each of them, and show the durations. Groups of the topic also receive them."""
    from ortoo.client import Message

    clock = SystemClock()
    probed = []
    async with mq.producer(topic) as producer:
        for number in range(count):
            started_s = clock.monotonic_s()
            receipt = await producer.send(Message(b"probe %d" % number, tag))
            stored_s = clock.monotonic_s()
            found = mq.fetch(receipt.queue, receipt.offset, receipt.offset + 1)
            if b"probe %d" % number not in [one.body async for batch in found for one in batch]:
                raise DataLoss(f"{receipt.queue} does not hold the sent message at offset {receipt.offset}")
            read_s = clock.monotonic_s()
            place = (receipt.queue.enode, receipt.queue.queue_id, receipt.offset)
            probed.append(
                ProbeResult(*place, round((stored_s - started_s) * 1000, 1), round((read_s - stored_s) * 1000, 1))
            )
    columns: Columns = {
        "ENODE": "enode",
        "QUEUE": "queue_id",
        "OFFSET": "offset",
        "STORED MS": "stored_ms",
        "READ MS": "read_ms",
    }
    return CommandOutput(probed, OutputTable(columns, probed))


async def get(
    mq: "Client",
    topic: TopicName,
    message_id: Annotated[
        str, typer.Argument(help="The message's id, as `ortoo send` printed it or its producer chose it.")
    ],
) -> CommandOutput:
    """Show one message."""
    found = await mq.admin.find_messages(topic, message_id=message_id, limit=1)
    _warn_unavailable(found)
    if not found.messages:
        raise NotFound(f"topic {topic!r} has no message {message_id!r}, or it was deleted", field="message_id")
    return _message_output(found.messages[0])


async def at(
    mq: "Client",
    topic: TopicName,
    enode: Annotated[str, typer.Argument(help="The enode of the queue.", autocompletion=complete_enodes)],
    queue: Annotated[int, typer.Argument(min=0, help="The queue's number.")],
    offset: Annotated[int, typer.Argument(min=0, help="The message's offset.")],
) -> CommandOutput:
    """Show the message at an offset of a queue."""
    from ortoo.client import Queue, StoredMessage

    place = Queue(topic, enode, queue)
    async for batch in mq.fetch(place, offset, offset + 1):
        for one in batch:
            if one.offset == offset:
                return _message_output(
                    StoredMessage(one.message_id, place, offset, one.stored_at_ms, one.stored_message())
                )
    raise NotFound(f"queue {queue} of {enode} has no message at offset {offset}", field="offset")


async def find(
    mq: "Client",
    topic: TopicName,
    key: Annotated[str, typer.Option(help="A key with which the messages were sent.")],
    begin: Annotated[
        str, typer.Option("--from", help="Stored at this time or later, such as 2026-01-31T12:00:00Z; empty = always.")
    ] = "",
    end: Annotated[str, typer.Option("--until", help="Stored before this time; empty = until now.")] = "",
    count: Annotated[int, typer.Option("-n", min=1, max=1000, help="Largest number to show.")] = 32,
) -> CommandOutput:
    """Show the messages with a key, the newest first."""
    begin_ms, end_ms = (time_of(text, field) if text else 0 for text, field in ((begin, "--from"), (end, "--until")))
    found = await mq.admin.find_messages(topic, key=key, begin_ms=begin_ms, end_ms=end_ms, limit=count)
    _warn_unavailable(found)
    columns: Columns = {
        "STORED AT": lambda stored: text_of_time(stored.stored_at_ms),
        "MESSAGE ID": "message_id",
        "TAG": lambda stored: stored.message.tag or "-",
        "BODY": body_start,
    }
    return CommandOutput(map(message_fields, found.messages), OutputTable(columns, found.messages))


def _message_output(found: "StoredMessage") -> CommandOutput:
    fields = message_fields(found)
    rows = [(name, value) for name, value in fields.items() if value not in (None, [], {})]
    return CommandOutput(fields, OutputTable({"field": itemgetter(0), "value": itemgetter(1)}, rows))


def _filter_of(tags: str, sql: str | None) -> "Filter":
    """The filter that `--tags` or `--sql` describes. Errors: Invalid when both options are given."""
    from ortoo.client import Sql

    if sql is None:
        return tags
    if tags != "*":
        raise Invalid("expected only one of --tags and --sql; in SQL the tag is TAGS", field="sql")
    return Sql(sql)


def _receipt_output(receipt: "Receipt") -> CommandOutput:
    queue = receipt.queue
    if receipt.recall_handle:
        return CommandOutput(
            receipt, f"delayed {receipt.message_id}; to cancel, ortoo delay cancel {receipt.recall_handle}"
        )
    place = f"queue {queue.queue_id} of {queue.enode} at offset {receipt.offset}"
    if receipt.duplicate:
        text = f"not stored: a message with this dedup id is {receipt.message_id} in {place}"
        return CommandOutput(receipt, text)
    return CommandOutput(receipt, f"stored {receipt.message_id} in {place}")


def _warn_unavailable(found: "FoundMessages") -> None:
    if found.unreachable_enodes:
        print_note(f"enodes that could not be searched: {', '.join(found.unreachable_enodes)}")


COMMANDS: Commands = {"get": get, "at": at, "find": find}
"""The commands of `ortoo message`, by name."""
