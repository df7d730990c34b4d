"""The `ortoo` command. Parts that cost time to import are imported by the commands that need them."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ortoo.cli.commands import group_commands
from ortoo.cli.commands import watching as watch_commands
from ortoo.cli.terminal.options import DEFAULT_ADDRESS, Address, AsJson, GroupName, TopicName, run, several

app = typer.Typer(
    help="Ortoo, a message queue.", no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False
)
topic_app = typer.Typer(help="Create, show and delete topics.", no_args_is_help=True)
message_app = typer.Typer(help="Find single messages.", no_args_is_help=True)
app.add_typer(topic_app, name="topic")
group_commands.add_to(app)
watch_commands.add_to(app)
app.add_typer(message_app, name="message")
delay_app = typer.Typer(help="Show and cancel messages that wait for their time.", no_args_is_help=True)
app.add_typer(delay_app, name="delay")
tx_app = typer.Typer(help="Show and end transactions that nobody has ended.", no_args_is_help=True)
app.add_typer(tx_app, name="tx")

dlq_app = typer.Typer(help="Show dead letters and send them again.", no_args_is_help=True)
app.add_typer(dlq_app, name="dlq")

Where = Annotated[str, typer.Option(help="SQL over properties, such as \"DLQ_REASON = 'attempts'\".")]


@app.command()
def dev(
    data_dir: Annotated[Path, typer.Option(help="Where messages are kept.")] = Path(".ortoo"),
    listen_address: Annotated[
        str, typer.Option(envvar="ORTOO_LISTEN_ADDRESS", help="host:port for clients; port 0 takes a free one.")
    ] = "127.0.0.1:8081",
) -> None:
    """Run a whole cluster in this process, for development."""
    from ortoo.cli.dev.run import run as run_cluster

    run_cluster(data_dir, listen_address)


@topic_app.command("create")
def topic_create(
    name: TopicName,
    queues: Annotated[int, typer.Option(help="Queues on each enode; 0 = 4.")] = 0,
    message_type: Annotated[
        str,
        typer.Option(
            "--type", help="What RocketMQ's clients may send: any, normal, fifo, delay, transaction, priority, lite."
        ),
    ] = "any",
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""
    from ortoo.cli.commands import topics

    run(topics.create(several(address), name, queues, message_type, as_json=as_json))


@topic_app.command("list")
def topic_list(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show all topics."""
    from ortoo.cli.commands import topics

    run(topics.show_all(several(address), as_json=as_json))


@topic_app.command("describe")
def topic_describe(name: TopicName, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show a topic and what its queues hold."""
    from ortoo.cli.commands import topics

    run(topics.describe(several(address), name, as_json=as_json))


@topic_app.command("update")
def topic_update(
    name: TopicName,
    queues: Annotated[int, typer.Option(min=0, help="Queues to read and write on each enode; never fewer.")] = 0,
    write_queues: Annotated[int, typer.Option(min=0, help="Queues to write; fewer let the others run dry.")] = 0,
    permission: Annotated[str, typer.Option(help="read_write, read_only, write_only or none.")] = "",
    enode: Annotated[list[str] | None, typer.Option(help="An enode to add; several times.")] = None,
    publish_order: Annotated[
        str, typer.Option(help="Queues that producers get, in this order: ENODE:QUEUES;ENODE:QUEUES, or sorted.")
    ] = "",
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Change a topic; what is not given stays."""
    from ortoo.cli.commands import topics

    run(
        topics.update(
            several(address),
            name,
            queues=queues,
            write_queues=write_queues,
            permission=permission,
            enodes=enode or [],
            publish_order=publish_order,
            as_json=as_json,
        )
    )


@topic_app.command("delete")
def topic_delete(name: TopicName, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Delete a topic and its messages."""
    from ortoo.cli.commands import topics

    run(topics.delete(several(address), name, as_json=as_json))


@app.command()
def send(
    topic: TopicName,
    body: Annotated[
        str | None, typer.Argument(help="The body; without it or with -, each line of standard input.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="For filters.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="For search; may be given several times.")] = None,
    prop: Annotated[list[str] | None, typer.Option("--property", help="NAME=VALUE; several times.")] = None,
    group: Annotated[str | None, typer.Option(help="The message group, whose messages keep their order.")] = None,
    delay: Annotated[str | None, typer.Option(help="Deliver so much later: 500ms, 90s, 15m, 2h, 30d.")] = None,
    expire: Annotated[str | None, typer.Option(help="No group gets it later than this after it could be had.")] = None,
    dedup_id: Annotated[str | None, typer.Option(help="Of messages with the same id only the first is stored.")] = None,
    priority: Annotated[int | None, typer.Option(min=0, help="Larger is more urgent, in a topic for that.")] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Send a message, or every line of standard input."""
    from ortoo.cli.commands import messages

    run(
        messages.send(
            several(address),
            topic,
            None if body == "-" else body,
            tag=tag,
            keys=key or [],
            pairs=prop or [],
            group=group,
            delay=delay,
            expire=expire,
            dedup_id=dedup_id,
            priority=priority,
            as_json=as_json,
        )
    )


@app.command()
def tail(
    topic: TopicName,
    from_first: Annotated[bool, typer.Option("--from-first", help="Begin with the oldest message.")] = False,
    count: Annotated[int | None, typer.Option("-n", min=1, help="Stop after so many messages.")] = None,
    follow: Annotated[bool, typer.Option(help="Go on with what comes.")] = True,
    tags: Annotated[str, typer.Option(help="Only messages with one of these tags, such as 'a || b'.")] = "*",
    sql: Annotated[str | None, typer.Option(help='Only messages for which this holds: "amount > 100".')] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show the last 10 messages, then those that come. Ctrl-C ends it."""
    from ortoo.cli.commands import messages

    wanted = messages.wanted(tags, sql)
    run(
        messages.tail(
            several(address),
            topic,
            from_first=from_first,
            count=count,
            follow=follow,
            wanted=wanted,
            as_json=as_json,
        )
    )


@message_app.command("get")
def message_get(
    topic: TopicName,
    message_id: Annotated[str, typer.Argument(help="As `ortoo send` printed it, or as its producer chose it.")],
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show one message."""
    from ortoo.cli.commands import message_search

    run(message_search.get(several(address), topic, message_id, as_json=as_json))


@message_app.command("find")
def message_find(
    topic: TopicName,
    key: Annotated[str, typer.Option(help="One of the keys the messages were sent with.")],
    begin_ms: Annotated[int, typer.Option(min=0, help="Stored at or after; milliseconds since 1970.")] = 0,
    end_ms: Annotated[int, typer.Option(min=0, help="Stored before; 0 = until now.")] = 0,
    count: Annotated[int, typer.Option("-n", min=1, max=1000, help="At most so many.")] = 32,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show the messages with a key, the newest first."""
    from ortoo.cli.commands import message_search

    run(
        message_search.find(
            several(address), topic, key, begin_ms=begin_ms, end_ms=end_ms, count=count, as_json=as_json
        )
    )


@delay_app.command("list")
def delay_list(
    topic: TopicName,
    limit: Annotated[int, typer.Option("-n", min=1, max=10_000, help="At most so many.")] = 100,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show the delayed messages of a topic, the next first."""
    from ortoo.cli.commands import delays

    run(delays.show(several(address), topic, limit=limit, as_json=as_json))


@delay_app.command("cancel")
def delay_cancel(
    handles: Annotated[list[str], typer.Argument(help="Recall handles, from `delay list` or a receipt.")],
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Forget delayed messages: they will never be delivered."""
    from ortoo.cli.commands import delays

    run(delays.cancel(several(address), handles, as_json=as_json))


TransactionIds = Annotated[list[str], typer.Argument(help="As `tx list` prints them.")]


@tx_app.command("list")
def tx_list(
    topic: Annotated[str, typer.Option(help="Only of this topic.")] = "",
    group: Annotated[str, typer.Option(help="Only of this producer group.")] = "",
    parked: Annotated[bool, typer.Option("--parked", help="Only those about which nobody is asked any more.")] = False,
    limit: Annotated[int, typer.Option("-n", min=1, max=10_000, help="At most so many.")] = 100,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show open transactions, the oldest first."""
    from ortoo.cli.commands import transactions

    run(transactions.show(several(address), topic=topic, group=group, parked_only=parked, limit=limit, as_json=as_json))


@tx_app.command("commit")
def tx_commit(transaction_ids: TransactionIds, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Have the messages of transactions delivered."""
    from ortoo.cli.commands import transactions
    from ortoo.client import Verdict

    run(transactions.end(several(address), transaction_ids, Verdict.COMMIT, as_json=as_json))


@tx_app.command("rollback")
def tx_rollback(transaction_ids: TransactionIds, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Have the messages of transactions forgotten."""
    from ortoo.cli.commands import transactions
    from ortoo.client import Verdict

    run(transactions.end(several(address), transaction_ids, Verdict.ROLL_BACK, as_json=as_json))


@tx_app.command("resume")
def tx_resume(transaction_ids: TransactionIds, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Ask the producers about parked transactions again."""
    from ortoo.cli.commands import transactions

    run(transactions.resume(several(address), transaction_ids, as_json=as_json))


@app.command()
def peek(
    topic: TopicName,
    group: Annotated[str, typer.Option(help="The group whose next messages are wanted; none = the oldest.")] = "",
    count: Annotated[int, typer.Option("-n", min=1, max=1024, help="At most so many.")] = 10,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show the next messages of a topic without taking them."""
    from ortoo.cli.commands import dead_letters

    run(dead_letters.peek(several(address), topic, group, count=count, as_json=as_json))


@dlq_app.command("list")
def dlq_list(
    group: GroupName,
    where: Where = "",
    count: Annotated[int, typer.Option("-n", min=0, help="At most so many; 0 = all.")] = 100,
    everything: Annotated[bool, typer.Option("--all", help="Also those that were sent again.")] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show the dead letters of a group, oldest first."""
    from ortoo.cli.commands import dead_letters

    run(
        dead_letters.show_all(
            several(address), group, where=where, count=count, with_replayed=everything, as_json=as_json
        )
    )


@dlq_app.command("show")
def dlq_show(
    group: GroupName,
    message_id: Annotated[str, typer.Argument(help="The message's id.")],
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show everything about one dead letter."""
    from ortoo.cli.commands import dead_letters

    run(dead_letters.show(several(address), group, message_id, as_json=as_json))


@dlq_app.command("replay")
def dlq_replay(
    group: GroupName,
    where: Where = "",
    to_topic: Annotated[str, typer.Option("--to", help="Another topic than the group's own retry topic.")] = "",
    rate: Annotated[int, typer.Option(min=0, help="At most so many a second; 0 = as fast as it goes.")] = 0,
    count: Annotated[int, typer.Option("-n", min=0, help="At most so many; 0 = all.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count; nothing is stored.")] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Send dead letters again, each once. Broken off and called again, it goes on where it was."""
    from ortoo.cli.commands import dead_letters

    run(
        dead_letters.replay(
            several(address),
            group,
            where=where,
            to_topic=to_topic,
            rate=rate,
            count=count,
            dry_run=dry_run,
            as_json=as_json,
        )
    )


@app.command()
def cluster(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show the cluster's processes."""
    from ortoo.cli.commands import groups

    run(groups.cluster(several(address), as_json=as_json))


def main() -> None:
    """Run the command. Exit codes: 0, 1 for a named error, 2 for a wrong use of the command."""
    from ortoo.common.errors import OrtooError

    try:
        app()
    except OrtooError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            sys.stderr.close()
            sys.exit(0)
        print(f"error: {error.filename or 'the system'}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
