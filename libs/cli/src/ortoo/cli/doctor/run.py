"""Runs `ortoo doctor`: collects facts, derives findings, prints them."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ortoo.cli.doctor.findings import Facts, Finding, of_address, of_cluster
from ortoo.cli.terminal.output import Answer, show
from ortoo.client import Admin, ClusterInfo, NotFound, OrtooError, connect
from ortoo.client.admin.address_check import EXAMINE_TIMEOUT_S, Examination, examine, reach
from ortoo.client.core.credentials import WHO_VARIABLES, addresses_from, surroundings
from ortoo.common.process.clock import SystemClock

CLUSTER_TIMEOUT_S = 0.4
"""Time reserved for the description of the cluster; it may also use what the examination leaves."""
DETAILS_TIMEOUT_S = 0.4
"""Time for all further queries, which run concurrently."""
LIMIT_S = EXAMINE_TIMEOUT_S + CLUSTER_TIMEOUT_S + DETAILS_TIMEOUT_S
"""Limit of the whole run."""
SNODES_EXAMINED_MAX = 8
INSIDE_SHARE = 0.6
"""Share of the remaining time that each process gets to report its own findings."""
T = TypeVar("T")


async def diagnose(address: str, topic: str, group: str, *, as_json: bool, patience: float = 1.0) -> None:
    """Print what is wrong, within `patience` times LIMIT_S; the exit code is 1 if anything serious is."""
    deadline_s = asyncio.get_running_loop().time() + LIMIT_S * patience
    environ = os.environ if address else surroundings()
    addresses = addresses_from(address, environ)
    seen = await asyncio.gather(*(examine(one, environ, patience=patience) for one in addresses))
    found = [finding for one in seen for finding in of_address(one)]
    good = [one.address for one in seen if one.role == "snode"]
    if good:
        found += await _behind(good, environ, topic, group, deadline_s, DETAILS_TIMEOUT_S * patience)
    show(Answer(found, _lines(found, good)), as_json=as_json)
    if any(finding.serious for finding in found):
        sys.exit(1)


async def _behind(
    addresses: Sequence[str],
    environ: Mapping[str, str],
    topic: str,
    group: str,
    deadline_s: float,
    details_s: float = DETAILS_TIMEOUT_S,
) -> list[Finding]:
    """The problems in the cluster behind a snode, queried with the credentials of `environ`."""
    keys: dict[str, Any] = {
        variable.removeprefix("ORTOO_").lower(): environ.get(variable, "") for variable in WHO_VARIABLES
    }
    try:
        async with connect(addresses, **keys) as mq:
            return of_cluster(await _facts(mq.admin, topic, group, deadline_s, details_s))
    except (OrtooError, TimeoutError) as error:
        why = str(error) or "no answer in time"
        return [Finding("no answer", f"the snode does not answer: {why}", "look at its log and its processor time")]


async def _described(admin: Admin, deadline_s: float) -> tuple[ClusterInfo, int]:
    """The cluster, and the clock of the snode minus the local clock in ms."""
    clock = SystemClock()
    begun_ms = clock.now_ms()
    async with asyncio.timeout_at(deadline_s):
        cluster = await admin.describe_cluster()
    now_ms = clock.now_ms()
    return cluster, cluster.now_ms - (begun_ms + now_ms) // 2 if cluster.now_ms else 0


async def _facts(admin: Admin, topic: str, group: str, deadline_s: float, details_s: float) -> Facts:
    inside_s = deadline_s - asyncio.get_running_loop().time()
    (cluster, skew_ms), inside = await asyncio.gather(
        _described(admin, deadline_s - details_s),
        _answer(admin.operations.findings(timeout_s=inside_s * INSIDE_SHARE), inside_s),
    )
    others = list(dict.fromkeys(snode.address for snode in cluster.snodes))[:SNODES_EXAMINED_MAX]  # workers share one
    snodes, groups, topics, described, (lag, members, modes), (offered, deleted, enode_members) = await asyncio.gather(
        asyncio.gather(*(_reached(other, details_s) for other in others)),
        _answer(admin.list_groups(), details_s),
        _answer(admin.list_topics(), details_s),
        _answer(admin.describe_topic(topic) if topic else None, details_s),
        asyncio.gather(
            _answer(admin.lag(group, topic) if topic and group else None, details_s),
            _answer(admin.consumer_count(group) if group else None, details_s),
            _answer(admin.groups.modes(group) if group else None, details_s),
        ),
        asyncio.gather(
            _answer(admin.list_offered_topics(), details_s),
            _answer(admin.list_deleted_topics(), details_s),
            _answer(admin.members.list(), details_s),
        ),
    )
    return Facts(
        cluster,
        skew_ms,
        groups.error,
        snodes,
        topic,
        described.value,
        "" if described.is_not_found else described.error,
        [one.name for one in topics.value or ()],
        group,
        groups.value or (),
        lag.value.lag_messages if lag.value else 0,
        members.value,
        any(one.topic == topic and one.mode.startswith("pop") for one in modes.value or ()),
        offered.value or (),
        deleted.value or (),
        inside.value or (),
        inside.error,
        enode_members=enode_members.value or (),
    )


@dataclass(frozen=True, slots=True)
class _Answered(Generic[T]):
    """The result of a query: a value, or the reason why there is none."""

    value: T | None = None
    error: str = ""
    is_not_found: bool = False


async def _answer(question: Awaitable[T] | None, timeout_s: float) -> _Answered[T]:
    """The answer within the time limit; an empty one without a question."""
    if question is None:
        return _Answered()
    try:
        async with asyncio.timeout(timeout_s):
            return _Answered(await question)
    except (OrtooError, TimeoutError) as error:
        return _Answered(None, str(error) or "no answer in time", isinstance(error, NotFound))


async def _reached(address: str, timeout_s: float) -> Examination:
    """Whether clients can reach an address that the cluster reports."""
    try:
        async with asyncio.timeout(timeout_s):
            return await reach(address, patience=timeout_s / DETAILS_TIMEOUT_S)
    except TimeoutError:
        return Examination(address, well_formed=True, resolves=True)


def _lines(found: Sequence[Finding], good: Sequence[str]) -> list[str]:
    if not found:
        return [f"all is well at {', '.join(good)}"]
    lines = []
    for finding in found:
        who = f" ({finding.process})" if finding.process else ""
        follows = f"\n  so {finding.consequence}" if finding.consequence else ""
        mark = "✗" if finding.serious else "!"
        lines.append(f"{mark} {finding.name}{who}: {finding.seen}{follows}\n  → {finding.cure}")
    return lines
