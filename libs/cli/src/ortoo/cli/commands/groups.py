"""`ortoo group ...`, `ortoo lag`, `ortoo reset-offset` and `ortoo cluster`."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ortoo.cli.terminal.output import print_json, print_table
from ortoo.client import GroupLag, Invalid, QueueOffset, connect


async def show_all(addresses: Sequence[str], *, as_json: bool) -> None:
    """Print all groups."""
    async with connect(addresses) as mq:
        groups = await mq.admin.list_groups()
    if as_json:
        print_json(groups)
    else:
        print_table(("GROUP", "MAY CONSUME"), [(g.name, "yes" if g.consume_enabled else "no") for g in groups])


async def describe(addresses: Sequence[str], group: str, *, as_json: bool) -> None:
    """Print a group's settings, its members, and how far it is."""
    async with connect(addresses) as mq:
        found = await mq.admin.groups.describe(group)
    if as_json:
        print_json(found)
        return
    it = found.group
    print(
        f"{group}: {'may consume' if it.consume_enabled else 'may not consume'}; slow when more than "
        f"{it.slow_consumer_threshold_messages} messages behind and silent for {it.slow_consumer_grace_ms} ms"
    )
    print(
        f"a message is tried {it.attempts_max} times, again by {it.retry}; one whose time is over is "
        f"{'parked' if it.park_expired else 'dropped'}; in flight at most {it.in_flight_max or '10,000 a queue'}"
    )
    print_table(
        ("MEMBER", "SNODE", "LANGUAGE", "HOW", "TOPICS"),
        [(m.client_id, m.snode, m.language, _how(m.pushed, m.broadcast), ",".join(m.topics)) for m in found.members],
    )
    for progress in found.progress:
        print(f"{progress.topic}: {progress.lag_messages} messages behind")


async def update(addresses: Sequence[str], group: str, *, as_json: bool, **changes: Any) -> None:
    """Change a group and say so."""
    async with connect(addresses) as mq:
        changed = await mq.admin.groups.update(group, **changes)
    if as_json:
        print_json(changed)
    else:
        print(f"changed group {changed.name}")


async def mode(
    addresses: Sequence[str], group: str, topic: str | None, to: str | None, *, force: bool, as_json: bool
) -> None:
    """Print how a group consumes its topics, or change it for one."""
    if to is not None and topic is None:
        raise Invalid("name the topic whose mode shall change", field="topic")
    async with connect(addresses) as mq:
        if to is not None and topic is not None:
            before = await mq.admin.groups.set_mode(group, topic, to, force=force)
            if as_json:
                print_json({"before": before, "mode": to})
            else:
                print(f"group {group} consumes {topic} by {to} now; before: {before}")
            return
        modes = [one for one in await mq.admin.groups.modes(group) if topic in (None, one.topic)]
    if as_json:
        print_json(modes)
    else:
        print_table(("TOPIC", "ENODE", "MODE"), [(one.topic, one.enode, one.mode) for one in modes])


async def delete(addresses: Sequence[str], group: str, *, as_json: bool) -> None:
    """Delete a group and say so."""
    async with connect(addresses) as mq:
        await mq.admin.delete_group(group)
    if as_json:
        print_json({"deleted": group})
    else:
        print(f"deleted group {group}")


async def clone(addresses: Sequence[str], group: str, to: str, topic: str, *, as_json: bool) -> None:
    """Copy offsets and print them."""
    async with connect(addresses) as mq:
        _print_offsets(await mq.admin.groups.clone_offsets(group, to, topic), as_json=as_json)


async def reset(addresses: Sequence[str], group: str, topic: str, to: str, *, force: bool, as_json: bool) -> None:
    """Move offsets and print where the group goes on."""
    async with connect(addresses) as mq:
        moved = await mq.admin.groups.reset_offsets(group, topic, **_target(to), force=force)
    _print_offsets(moved, as_json=as_json)


async def lag(addresses: Sequence[str], group: str, topic: str | None, *, as_json: bool) -> None:
    """Print how far a group is behind in a topic, or in all that its members want."""
    async with connect(addresses) as mq:
        if topic is not None:
            topics = [topic]
        else:
            topics = [it.topic for it in (await mq.admin.groups.describe(group)).progress]
            if not topics:
                raise Invalid(f"{group} has no member that wants a topic now; name the topic", field="topic")
        behind = {name: await mq.admin.lag(group, name) for name in topics}
    if as_json:
        print_json(behind[topic] if topic is not None else behind)
        return
    for name, one in behind.items():
        _print_lag(group, name, one)


async def cluster(addresses: Sequence[str], *, as_json: bool) -> None:
    """Print the cluster's processes."""
    async with connect(addresses) as mq:
        found = await mq.admin.describe_cluster()
    if as_json:
        print_json(found)
        return
    rows = []
    for role, items in (("enode", found.enodes), ("snode", found.snodes)):
        for item in items:
            rows.append((role, item.name, item.address, "alive" if item.alive else "away"))
            rows += [(f"replica {number}", item.name, address, "follows") for number, address in item.replicas]
    print_table(("ROLE", "NAME", "ADDRESS", "STATE"), rows)


def _print_lag(group: str, topic: str, behind: GroupLag) -> None:
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


def _print_offsets(offsets: Sequence[QueueOffset], *, as_json: bool) -> None:
    if as_json:
        print_json(offsets)
        return
    print_table(
        ("ENODE", "QUEUE", "OFFSET"),
        [(it.queue.enode, it.queue.queue_id, it.offset if it.offset >= 0 else "none") for it in offsets],
    )


def _target(to: str) -> dict[str, Any]:
    """Where `--to` points. Errors: Invalid."""
    if to == "begin":
        return {"offset": 0}
    if to == "end":
        return {"time_ms": -1}
    if to.isdigit():
        return {"offset": int(to)}
    try:
        at = datetime.fromisoformat(to)
    except ValueError:
        raise Invalid(
            f"{to!r}; expected begin, end, an offset, or a time such as 2026-01-31T12:00:00Z", field="--to"
        ) from None
    return {"time_ms": int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)}


def _how(pushed: bool, broadcast: bool) -> str:
    return ("push" if pushed else "pull") + (", broadcast" if broadcast else "")
