"""`ortoo group ...`, `ortoo lag` and `ortoo cluster`."""

from collections.abc import Sequence

from ortoo.cli.output import print_json, print_table
from ortoo.client import connect


async def show_all(addresses: Sequence[str], *, as_json: bool) -> None:
    """Print all groups."""
    async with connect(addresses) as mq:
        groups = await mq.admin.list_groups()
    if as_json:
        print_json(groups)
    else:
        print_table(("GROUP", "MAY CONSUME"), [(g.name, "yes" if g.consume_enabled else "no") for g in groups])


async def lag(addresses: Sequence[str], group: str, topic: str, *, as_json: bool) -> None:
    """Print how far a group is behind."""
    async with connect(addresses) as mq:
        behind = await mq.admin.lag(group, topic)
    if as_json:
        print_json(behind)
        return
    print(f"{group} is {behind.lag_messages} messages behind in {topic}")
    print_table(
        ("ENODE", "QUEUE", "COMMITTED", "END", "LAG"),
        [
            (
                item.queue.enode,
                item.queue.queue_id,
                item.committed_offset if item.committed_offset >= 0 else "none",
                item.end_offset,
                item.lag_messages,
            )
            for item in behind.queues
        ],
    )


async def cluster(addresses: Sequence[str], *, as_json: bool) -> None:
    """Print the cluster's processes."""
    async with connect(addresses) as mq:
        found = await mq.admin.describe_cluster()
    if as_json:
        print_json(found)
        return
    processes = [("enode", item) for item in found.enodes] + [("snode", item) for item in found.snodes]
    print_table(
        ("ROLE", "NAME", "ADDRESS", "STATE"),
        [(role, item.name, item.address, "alive" if item.alive else "away") for role, item in processes],
    )
