"""Collects the facts from which the doctor derives its findings, each query with a time limit."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ortoo.client.admin.address_check import AddressCheck, check_reachable
from ortoo.client.admin.admin import Admin
from ortoo.client.admin.descriptions import (
    ClusterInfo,
    GroupInfo,
)
from ortoo.client.admin.doctor.findings import Facts
from ortoo.client.admin.topics import (
    DeletedTopic,
    OrphanedTopic,
)
from ortoo.common.errors import NotFound, OrtooError, Unavailable
from ortoo.common.process.clock import SystemClock

DETAILS_TIMEOUT_S = 0.4
"""Time for all further queries, which run concurrently."""
SNODES_CHECKED_MAX = 8
PROCESS_TIMEOUT_SHARE = 0.6
"""Share of the remaining time that each process gets to report its own findings."""
T = TypeVar("T")


async def _describe_cluster(admin: Admin, deadline_s: float) -> tuple[ClusterInfo, int]:
    """The cluster, and the clock of the snode minus the local clock in ms."""
    clock = SystemClock()
    started_ms = clock.now_ms()
    async with asyncio.timeout_at(deadline_s):
        cluster = await admin.describe_cluster()
    now_ms = clock.now_ms()
    return cluster, cluster.now_ms - (started_ms + now_ms) // 2 if cluster.now_ms else 0


async def collect_facts(
    admin: Admin, topic: str, group: str, deadline_s: float, details_s: float = DETAILS_TIMEOUT_S
) -> Facts:
    """The facts about the cluster, and about `topic` and `group` unless they are empty.

    The description of the cluster must arrive before `deadline_s`, a time of the event loop. Further queries may take
    `details_s`; those without an answer are named as unchecked. Errors: those of the snode, or TimeoutError.
    """
    reported_timeout_s = deadline_s - asyncio.get_running_loop().time()
    unchecked: list[str] = []
    (cluster, skew_ms), reported = await asyncio.gather(
        _describe_cluster(admin, deadline_s - details_s),
        _query(
            "the findings of the processes",
            admin.operations.examine(timeout_s=reported_timeout_s * PROCESS_TIMEOUT_SHARE),
            reported_timeout_s,
            unchecked,
        ),
    )
    snode_addresses = list(dict.fromkeys(snode.address for snode in cluster.snodes))[
        :SNODES_CHECKED_MAX
    ]  # workers share one
    details_end_s = asyncio.get_running_loop().time() + details_s
    (snodes, groups, orphaned, deleted), described, lag, members, replica_sets = await asyncio.gather(
        _addresses_then_lists(admin, snode_addresses, group, details_s, unchecked),
        _query(f"topic {topic}", admin.describe_topic(topic) if topic else None, details_s, unchecked),
        _query(
            f"the lag of group {group}",
            admin.describe_lag(group, topic) if topic and group else None,
            details_s,
            unchecked,
        ),
        _query(
            f"the consumers of group {group}",
            admin.count_consumers(group) if group else None,
            details_s,
            unchecked,
        ),
        _query("the replicas of enodes", admin.replicas.list(), details_s, unchecked),
    )
    left_s = details_end_s - asyncio.get_running_loop().time()
    topics = await _try_call(admin.list_topics() if described.is_not_found else None, left_s)  # similar names
    name_server_calls = (replica_sets, orphaned, deleted, groups)
    return Facts(
        cluster,
        skew_ms,
        next((one.error for one in name_server_calls if one.is_unavailable), ""),
        snodes,
        topic if described.is_answered else "",
        described.value,
        "" if described.is_not_found else described.error,
        [one.name for one in topics.value or ()],
        group if groups.value is not None else "",
        groups.value or (),
        lag.value.lag_messages if lag.value else 0,
        members.value,
        orphaned.value or (),
        deleted.value or (),
        reported.value.findings if reported.value else (),
        reported.value.processes if reported.value else (),
        reported.error if reported.is_answered else "",
        replica_sets=replica_sets.value or (),
        unchecked=unchecked,
    )


async def _addresses_then_lists(
    admin: Admin, addresses: Sequence[str], group: str, timeout_s: float, unchecked: list[str]
) -> tuple[
    list[AddressCheck],
    "_CallResult[list[GroupInfo]]",
    "_CallResult[list[OrphanedTopic]]",
    "_CallResult[list[DeletedTopic]]",
]:
    """The checks of addresses and the lists that are needed. The lists begin after the checks, or after half the time.

    A long list keeps the event loop busy while it is decoded. A connection that is tried meanwhile could time out.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    checks = asyncio.gather(*(_check_reachable(one, timeout_s) for one in addresses))
    await asyncio.wait([checks], timeout=timeout_s / 2)
    left_s = deadline_s - loop.time()
    lists = await asyncio.gather(
        _query("the groups", admin.list_groups() if group else None, left_s, unchecked),
        _query("topics that only enodes have", admin.list_orphaned_topics(), left_s, unchecked),
        _query("deleted topics", admin.list_deleted_topics(), left_s, unchecked),
    )
    return list(await checks), *lists


@dataclass(frozen=True, slots=True)
class _CallResult(Generic[T]):
    """The result of a query: a value, or the reason why there is none."""

    value: T | None = None
    error: str = ""
    is_not_found: bool = False
    is_unavailable: bool = False
    """Whether the called process answered that a process behind it is unavailable."""
    is_answered: bool = True
    """Whether the answer, or an error, arrived in time."""


async def _try_call(call: Awaitable[T] | None, timeout_s: float) -> _CallResult[T]:
    """The result of `call` within the time limit, or its error; an empty result if `call` is None."""
    if call is None:
        return _CallResult()
    try:
        async with asyncio.timeout(timeout_s):
            return _CallResult(await call)
    except OrtooError as error:
        is_not_found, is_unavailable = isinstance(error, NotFound), isinstance(error, Unavailable)
        return _CallResult(None, str(error), is_not_found, is_unavailable)
    except TimeoutError:
        return _CallResult(None, "no answer in time", is_answered=False)


async def _query(what: str, call: Awaitable[T] | None, timeout_s: float, unchecked: list[str]) -> _CallResult[T]:
    """The result of `call`. Without an answer in time, `what` is added to `unchecked`, and no finding is made of it."""
    result = await _try_call(call, timeout_s)
    if not result.is_answered:
        unchecked.append(what)
    return result


async def _check_reachable(address: str, timeout_s: float) -> AddressCheck:
    """Whether clients can reach an address that the cluster reports."""
    try:
        async with asyncio.timeout(timeout_s):
            return await check_reachable(address, timeout_factor=timeout_s / DETAILS_TIMEOUT_S)
    except TimeoutError:
        return AddressCheck(address, well_formed=True, resolves=True)
