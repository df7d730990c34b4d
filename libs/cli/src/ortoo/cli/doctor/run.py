"""Asks, decides, prints."""

import asyncio
import contextlib
import sys
from collections.abc import Sequence

from ortoo.cli.doctor.findings import Facts, Finding, of_address, of_cluster
from ortoo.cli.output import print_json
from ortoo.client import Admin, GroupInfo, NotFound, OrtooError, TopicDescription, connect
from ortoo.client.examination import examine
from ortoo.common.clock import SystemClock

ASK_TIMEOUT_S = 0.8
SNODES_EXAMINED_MAX = 8


async def diagnose(addresses: Sequence[str], topic: str, group: str, *, as_json: bool) -> None:
    """Print what is wrong; the exit code is 1 if anything serious is."""
    seen = await asyncio.gather(*map(examine, addresses))
    found = [finding for one in seen for finding in of_address(one)]
    good = [one.address for one in seen if one.role == "snode"]
    if good:
        found += await _behind(good, topic, group)
    if as_json:
        print_json(found)
    else:
        _print(found, good)
    if any(finding.serious for finding in found):
        sys.exit(1)


async def _behind(addresses: Sequence[str], topic: str, group: str) -> list[Finding]:
    """What is wrong in the cluster behind a snode."""
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S), connect(addresses) as mq:
            facts = await _facts(mq.admin, topic, group)
    except (OrtooError, TimeoutError) as error:
        why = str(error) or f"no answer within {ASK_TIMEOUT_S:.0f} s"
        return [Finding("no answer", f"the snode does not answer: {why}", "look at its log and its processor time")]
    return of_cluster(facts)


async def _facts(admin: Admin, topic: str, group: str) -> Facts:
    clock = SystemClock()
    begun_ms = clock.now_ms()
    cluster = await admin.describe_cluster()
    now_ms = clock.now_ms()
    skew_ms = cluster.now_ms - (begun_ms + now_ms) // 2 if cluster.now_ms else 0
    others = [snode.address for snode in cluster.snodes][:SNODES_EXAMINED_MAX]
    snodes, (groups, error), topics, described = await asyncio.gather(
        asyncio.gather(*map(examine, others)), _groups(admin), admin.list_topics(), _topic(admin, topic)
    )
    lag_messages, members = 0, None
    if group and any(one.name == group for one in groups):
        lag_messages, members = await _behind_by(admin, group, topic)
    return Facts(
        cluster,
        skew_ms,
        error,
        snodes,
        topic,
        described,
        [one.name for one in topics],
        group,
        groups,
        lag_messages,
        members,
    )


async def _groups(admin: Admin) -> tuple[list[GroupInfo], str]:
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S / 2):
            return await admin.list_groups(), ""
    except (OrtooError, TimeoutError) as error:
        return [], str(error) or "no answer in time"


async def _topic(admin: Admin, topic: str) -> TopicDescription | None:
    if topic:
        with contextlib.suppress(NotFound):
            return await admin.describe_topic(topic)
    return None


async def _behind_by(admin: Admin, group: str, topic: str) -> tuple[int, int | None]:
    """(messages behind, consumers now); consumers None when that cannot be asked."""
    lag = 0
    with contextlib.suppress(OrtooError):
        if topic:
            lag = (await admin.lag(group, topic)).lag_messages
    try:
        return lag, await admin.consumer_count(group)
    except OrtooError:
        return lag, None


def _print(found: Sequence[Finding], good: Sequence[str]) -> None:
    if not found:
        print(f"all is well at {', '.join(good)}")
    for finding in found:
        print(f"{'✗' if finding.serious else '!'} {finding.name}: {finding.seen}\n  → {finding.cure}")
