"""`ortoo enode drain` and `ortoo enode fill`: stop and resume sends to an enode."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ortoo.cli.terminal.command import Commands, EnodeName
from ortoo.cli.terminal.output import CommandOutput, OutputTable
from ortoo.common.logs.counts import counted

if TYPE_CHECKING:
    from ortoo.client import Client, TopicInfo
    from ortoo.client.admin.enodes.draining import RemainingMessages

POLL_INTERVAL_S = 1.0
ROUTE_EXPIRY_S = 35.0
"""Producers query routes every 30 s; until then they may send to an enode that is being drained."""


async def drain(
    mq: "Client",
    enode: EnodeName,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until no new messages arrive and all are read.")] = False,
) -> CommandOutput:
    """Stop sends to an enode, and show its unread messages. Message groups move to other enodes."""
    from ortoo.client.admin.enodes.draining import drain_enode, list_remaining, topics_on

    here = await topics_on(mq.admin, enode)
    changed = await drain_enode(mq.admin, here)
    remaining = await (_wait_drained(mq, enode, here.topics) if wait else list_remaining(mq.admin, enode, here.topics))
    summary = f"no messages are sent to {enode}: changed {len(changed)} of its {counted(len(here.topics), 'topic')}"
    value = {"enode": enode, "changed": changed, "left": remaining}
    if not remaining:
        return CommandOutput(value, f"{summary}; all groups have read its messages")
    table = OutputTable({"TOPIC": "topic", "GROUP": "group", "MESSAGES": "messages"}, remaining)
    return CommandOutput(value, (f"{summary}; unread messages:", table))


async def fill(mq: "Client", enode: EnodeName) -> CommandOutput:
    """Resume sends to an enode that was drained."""
    from ortoo.client.admin.enodes.draining import fill_enode, topics_on

    changed = await fill_enode(mq.admin, await topics_on(mq.admin, enode))
    summary = f"resumed sends to {enode} in {counted(len(changed), 'topic')}"
    return CommandOutput({"enode": enode, "changed": changed}, summary)


async def _wait_drained(mq: "Client", enode: str, topics: "Sequence[TopicInfo]") -> "list[RemainingMessages]":
    """Wait until all producers have queried the new routes and every message is read."""
    from ortoo.client.admin.enodes.draining import list_remaining
    from ortoo.common.process.clock import SystemClock

    clock = SystemClock()
    ends, unchanged_since_s = await _end_offset_sum(mq, enode, topics), clock.monotonic_s()
    while (
        remaining := await list_remaining(mq.admin, enode, topics)
    ) or clock.monotonic_s() - unchanged_since_s < ROUTE_EXPIRY_S:
        await clock.sleep(POLL_INTERVAL_S)
        if (found := await _end_offset_sum(mq, enode, topics)) != ends:
            ends, unchanged_since_s = found, clock.monotonic_s()
    return remaining


async def _end_offset_sum(mq: "Client", enode: str, topics: "Sequence[TopicInfo]") -> int:
    """The sum of the end offsets of all queues of the topics on the enode."""
    described = [(await mq.admin.describe_topic(topic.name)).queues for topic in topics]
    return sum(one.end_offset for queues in described for one in queues if one.queue.enode == enode)


COMMANDS: Commands = {"drain": drain, "fill": fill}
"""The commands of `ortoo enode`, by name."""
