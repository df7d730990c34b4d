"""`ortoo tx`: transactions without a verdict."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from ortoo.cli.commands.deferred.delays import Limit
from ortoo.cli.terminal.command import Commands
from ortoo.cli.terminal.completion import complete_topics
from ortoo.cli.terminal.output import Columns, CommandOutput, OutputTable, text_of_time

if TYPE_CHECKING:
    from ortoo.client import Client

TransactionIds = Annotated[list[str], typer.Argument(help="Ids of transactions, as `tx list` prints them.")]


async def show_all(
    mq: "Client",
    topic: Annotated[str, typer.Option(help="Only transactions of this topic.", autocompletion=complete_topics)] = "",
    group: Annotated[str, typer.Option(help="Only transactions of this producer group.")] = "",
    parked: Annotated[
        bool, typer.Option("--parked", help="Only parked transactions, whose checks have ended.")
    ] = False,
    limit: Limit = 100,
) -> CommandOutput:
    """Show open transactions, oldest first."""
    found = await mq.admin.list_transactions(topic=topic, producer_group=group, parked_only=parked, limit=limit)
    columns: Columns = {
        "STARTED": lambda it: text_of_time(it.started_at_ms),
        "TOPIC": "queue.topic",
        "GROUP": "producer_group",
        "MESSAGES": "message_count",
        "CHECKS": "checks",
        "NEXT CHECK": lambda it: "parked" if it.parked else text_of_time(it.next_check_ms),
        "TRANSACTION": "transaction_id",
    }
    return CommandOutput(found, OutputTable(columns, found))


async def commit(mq: "Client", transaction_ids: TransactionIds) -> AsyncIterator[CommandOutput]:
    """Commit transactions, so that their messages are delivered."""
    from ortoo.client import TransactionVerdict

    for transaction_id in transaction_ids:
        await mq.admin.end_transaction(transaction_id, TransactionVerdict.COMMIT)
        yield _outcome_output(transaction_id, "committed")


async def rollback(mq: "Client", transaction_ids: TransactionIds) -> AsyncIterator[CommandOutput]:
    """Roll transactions back, so that their messages are never delivered."""
    from ortoo.client import TransactionVerdict

    for transaction_id in transaction_ids:
        await mq.admin.end_transaction(transaction_id, TransactionVerdict.ROLLBACK)
        yield _outcome_output(transaction_id, "rolled back")


async def resume(mq: "Client", transaction_ids: TransactionIds) -> AsyncIterator[CommandOutput]:
    """Resume the checks of parked transactions."""
    for transaction_id in transaction_ids:
        await mq.admin.resume_transaction(transaction_id)
        yield _outcome_output(transaction_id, "resumed")


def _outcome_output(transaction_id: str, outcome: str) -> CommandOutput:
    return CommandOutput({"transaction_id": transaction_id, "outcome": outcome}, f"{outcome} {transaction_id}")


COMMANDS: Commands = {"list": show_all, "commit": commit, "rollback": rollback, "resume": resume}
"""The commands of `ortoo tx`, by name."""
