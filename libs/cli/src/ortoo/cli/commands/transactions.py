"""`ortoo tx`: transactions that nobody has ended."""

from collections.abc import Sequence

from ortoo.cli.commands.delays import text_of_time
from ortoo.cli.terminal.output import print_json, print_table
from ortoo.client import Verdict, connect


async def show(
    addresses: Sequence[str], *, topic: str, group: str, parked_only: bool, limit: int, as_json: bool
) -> None:
    """Print open transactions, the oldest first."""
    async with connect(addresses) as mq:
        found = await mq.admin.list_transactions(
            topic=topic, producer_group=group, parked_only=parked_only, limit=limit
        )
    if as_json:
        print_json(found)
        return
    print_table(
        ("BEGUN", "TOPIC", "GROUP", "MESSAGES", "CHECKS", "NEXT CHECK", "TRANSACTION"),
        [
            (
                text_of_time(it.begun_at_ms),
                it.queue.topic,
                it.producer_group,
                it.message_count,
                it.checks,
                "parked" if it.parked else text_of_time(it.next_check_ms),
                it.transaction_id,
            )
            for it in found
        ],
    )


async def end(addresses: Sequence[str], transaction_ids: Sequence[str], verdict: Verdict, *, as_json: bool) -> None:
    """Commit or roll back, in the producer's stead."""
    word = "committed" if verdict is Verdict.COMMIT else "rolled back"
    async with connect(addresses) as mq:
        for transaction_id in transaction_ids:
            await mq.admin.end_transaction(transaction_id, verdict)
            _say(transaction_id, word, as_json=as_json)


async def resume(addresses: Sequence[str], transaction_ids: Sequence[str], *, as_json: bool) -> None:
    """Ask the producers about parked transactions again."""
    async with connect(addresses) as mq:
        for transaction_id in transaction_ids:
            await mq.admin.resume_transaction(transaction_id)
            _say(transaction_id, "resumed", as_json=as_json)


def _say(transaction_id: str, word: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"transaction_id": transaction_id, "outcome": word})
    else:
        print(f"{word} {transaction_id}")
