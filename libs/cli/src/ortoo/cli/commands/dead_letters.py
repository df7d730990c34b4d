"""`ortoo dlq` and `ortoo peek`."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from ortoo.cli.terminal.output import message_fields, print_json, print_table
from ortoo.client import DeadLetter, NotFound, PeekedMessage, Sql, StoredMessage, connect


async def show_all(
    addresses: Sequence[str], group: str, *, where: str, count: int, with_replayed: bool, as_json: bool
) -> None:
    """Print the dead letters of a group."""
    async with connect(addresses) as mq:
        found = mq.admin.dead_letters(group, _sql(where), letters_max=count, with_replayed=with_replayed)
        letters = [letter async for letter in found]
    if as_json:
        for letter in letters:
            print_json(_fields(letter))
        return
    print_table(
        ("MESSAGE ID", "PARKED", "TOPIC", "REASON", "ATTEMPTS", "REPLAYED", "ERROR"),
        [
            (
                letter.message_id,
                _time(letter.parked_at_ms),
                letter.origin_queue.topic,
                letter.reason,
                letter.attempts,
                "yes" if letter.replayed else "no",
                letter.error[:60],
            )
            for letter in letters
        ],
    )


async def show(addresses: Sequence[str], group: str, message_id: str, *, as_json: bool) -> None:
    """Print everything about one dead letter."""
    async with connect(addresses) as mq:
        async for letter in mq.admin.dead_letters(group, with_replayed=True):
            if letter.message_id != message_id:
                continue
            if as_json:
                print_json(_fields(letter))
                return
            for name, value in _fields(letter).items():
                print(f"{name:16} {value}")
            return
    raise NotFound(f"group {group} has no dead letter {message_id!r}; `ortoo dlq list {group} --all` shows them")


async def replay(
    addresses: Sequence[str],
    group: str,
    *,
    where: str,
    to_topic: str,
    rate: int,
    count: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send dead letters again and say how far it has come. Ctrl-C breaks it off; called again it goes on."""
    async with connect(addresses) as mq:
        going = mq.admin.replay_dead_letters(
            group, _sql(where), to_topic=to_topic, messages_per_s=rate, messages_max=count, dry_run=dry_run
        )
        progress = None
        async for progress in going:
            if as_json:
                print_json(progress)
            elif sys.stderr.isatty() and not progress.done:
                print(f"\r{progress.replayed_messages} messages", end="", file=sys.stderr, flush=True)
        if progress is not None and not as_json:
            verb = "would be sent again" if dry_run else "sent again"
            print(f"{progress.replayed_messages} messages {verb}, {progress.skipped_messages} had been before")


async def peek(addresses: Sequence[str], topic: str, group: str, *, count: int, as_json: bool) -> None:
    """Print the next messages of a topic."""
    async with connect(addresses) as mq:
        messages = await mq.admin.peek(topic, group, messages_max=count)
    if as_json:
        for one in messages:
            print_json({**message_fields(_stored(one)), "attempts": one.attempts})
        return
    print_table(
        ("MESSAGE ID", "ENODE", "QUEUE", "OFFSET", "ATTEMPTS", "BODY"),
        [
            (
                one.message_id,
                one.queue.enode,
                one.queue.queue_id,
                one.offset,
                one.attempts,
                one.message.body[:60].decode(errors="backslashreplace"),
            )
            for one in messages
        ],
    )


def _sql(where: str) -> Sql | None:
    return Sql(where) if where else None


def _stored(one: PeekedMessage | DeadLetter) -> StoredMessage:
    stored_at_ms = one.stored_at_ms if isinstance(one, PeekedMessage) else one.parked_at_ms
    return StoredMessage(one.message_id, one.queue, one.offset, stored_at_ms, one.message)


def _fields(letter: DeadLetter) -> dict[str, object]:
    fields = message_fields(_stored(letter))
    origin = letter.origin_queue
    told = {
        "reason": letter.reason,
        "attempts": letter.attempts,
        "error": letter.error,
        "consumer": letter.consumer,
        "origin_topic": origin.topic,
        "origin_enode": origin.enode,
        "origin_queue_id": origin.queue_id,
        "origin_offset": letter.origin_offset,
        "parked_at_ms": letter.parked_at_ms,
        "replayed": letter.replayed,
    }
    fields.pop("stored_at_ms")
    return {**fields, **told}


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
