"""The open transactions, oldest first: commit, roll back, and check again."""

from starlette.responses import Response

from ortoo.client import TransactionVerdict
from ortoo.common.errors import Invalid
from ortoo.console.web.visit import Page, Visit

SHOWN_FIRST, SHOWN_MAX = 100, 10_000
VERDICTS = {"commit": TransactionVerdict.COMMIT, "rollback": TransactionVerdict.ROLLBACK}


async def show(visit: Visit) -> Response:
    """The page of open transactions."""
    topic, parked_only = visit.query("topic"), bool(visit.query("parked"))
    count = visit.query_number("count", default=SHOWN_FIRST, maximum=SHOWN_MAX)
    limit = min(count + 1, SHOWN_MAX)
    found = await visit.admin.list_transactions(topic=topic, parked_only=parked_only, limit=limit)
    options = (*(("--topic", topic) if topic else ()), *(("--parked",) if parked_only else ()))
    return visit.page(
        "transactions.html",
        title="Open transactions",
        commands=(("tx", "list", *options), ("tx", "commit", "ID"), ("tx", "rollback", "ID"), ("tx", "resume", "ID")),
        transactions=found[:count],
        topic=topic,
        parked_only=parked_only,
        more_count=min(count * 10, SHOWN_MAX) if len(found) > count else 0,
    )


async def end(visit: Visit) -> Response:
    """Commit or roll back a transaction for its producer."""
    verdict = VERDICTS.get(visit.field("verdict"))
    if verdict is None:
        raise Invalid("expected commit or rollback", field="verdict")
    await visit.admin.end_transaction(visit.field("transaction"), verdict)
    return visit.redirect("/transactions")


async def resume(visit: Visit) -> Response:
    """Check a parked transaction again."""
    await visit.admin.resume_transaction(visit.field("transaction"))
    return visit.redirect("/transactions")


PAGES = (
    Page("/transactions", show),
    Page("/transactions/end", end, is_action=True),
    Page("/transactions/resume", resume, is_action=True),
)
