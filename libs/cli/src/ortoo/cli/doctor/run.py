"""Runs `ortoo doctor`: collects facts, derives findings, prints them."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ortoo.cli.doctor.findings import DoctorFinding, Facts, address_findings, cluster_findings
from ortoo.cli.terminal.output import CommandOutput, show
from ortoo.client import (
    Admin,
    ClusterInfo,
    DeletedTopic,
    Forbidden,
    GroupInfo,
    NotFound,
    OrphanedTopic,
    OrtooError,
    Unavailable,
    connect,
)
from ortoo.client.admin.address_check import CHECK_TIMEOUT_S, AddressCheck, check_address, check_reachable
from ortoo.client.core.credentials import (
    CERTIFICATE_VARIABLE,
    IDENTITY_VARIABLES,
    addresses_from,
    effective_environment,
)
from ortoo.common.machine.certificates import CertificateFile
from ortoo.common.process.clock import SystemClock
from ortoo.common.telemetry.process_metrics import certificate_findings

CLUSTER_TIMEOUT_S = 0.4
"""Time reserved for the description of the cluster, which may also use time that the checks of addresses leave."""
DETAILS_TIMEOUT_S = 0.4
"""Time for all further queries, which run concurrently."""
TIMEOUT_S = CHECK_TIMEOUT_S + CLUSTER_TIMEOUT_S + DETAILS_TIMEOUT_S
"""Limit of the whole run."""
SNODES_CHECKED_MAX = 8
PROCESS_TIMEOUT_SHARE = 0.6
"""Share of the remaining time that each process gets to report its own findings."""
T = TypeVar("T")


async def diagnose(address: str, topic: str, group: str, *, as_json: bool, timeout_factor: float = 1.0) -> None:
    """Print the problems found, within `timeout_factor` times TIMEOUT_S. The exit code is 1 if a problem is serious."""
    deadline_s = asyncio.get_running_loop().time() + TIMEOUT_S * timeout_factor
    environ = os.environ if address else effective_environment()
    addresses = addresses_from(address, environ)
    checks = await asyncio.gather(*(check_address(one, environ, timeout_factor=timeout_factor) for one in addresses))
    found = [finding for one in checks for finding in address_findings(one)] + _own_certificates(environ)
    snode_addresses = [one.address for one in checks if one.role == "snode"]
    if snode_addresses:
        found += await _findings_behind(
            snode_addresses, environ, topic, group, deadline_s, DETAILS_TIMEOUT_S * timeout_factor
        )
    show(CommandOutput(found, _lines(found, snode_addresses)), as_json=as_json)
    if any(finding.critical for finding in found):
        sys.exit(1)


async def _findings_behind(
    addresses: Sequence[str],
    environ: Mapping[str, str],
    topic: str,
    group: str,
    deadline_s: float,
    details_s: float = DETAILS_TIMEOUT_S,
) -> list[DoctorFinding]:
    """The problems of the cluster whose snodes have these `addresses`, queried with the credentials of `environ`."""
    keys: dict[str, Any] = {
        variable.removeprefix("ORTOO_").lower(): environ.get(variable, "") for variable in IDENTITY_VARIABLES
    }
    try:
        async with connect(addresses, **keys) as mq:
            return cluster_findings(await _facts(mq.admin, topic, group, deadline_s, details_s))
    except Forbidden as error:
        remedy = (
            "run the doctor as a user with the permissions of an admin: set ORTOO_ACCESS_KEY and ORTOO_SECRET_KEY "
            "(docs/operations/access.md)"
        )
        observed = f"the cluster was not examined, because the snode refuses this user: {error.message}"
        return [DoctorFinding("not permitted", observed, remedy)]
    except (OrtooError, TimeoutError) as error:
        reason = str(error) or "no answer in time"
        return [
            DoctorFinding("no answer", f"the snode does not answer: {reason}", "look at its log and its processor time")
        ]


def _own_certificates(environ: Mapping[str, str]) -> list[DoctorFinding]:
    """The findings of the certificate that this command uses."""
    file = environ.get(CERTIFICATE_VARIABLE)
    files = [CertificateFile(CERTIFICATE_VARIABLE, Path(file))] if file else []
    found = certificate_findings(files, SystemClock().now_ms())
    return [DoctorFinding(one.name, one.observed, one.remedy, one.critical, one.impact) for one in found]


async def _describe_cluster(admin: Admin, deadline_s: float) -> tuple[ClusterInfo, int]:
    """The cluster, and the clock of the snode minus the local clock in ms."""
    clock = SystemClock()
    started_ms = clock.now_ms()
    async with asyncio.timeout_at(deadline_s):
        cluster = await admin.describe_cluster()
    now_ms = clock.now_ms()
    return cluster, cluster.now_ms - (started_ms + now_ms) // 2 if cluster.now_ms else 0


async def _facts(admin: Admin, topic: str, group: str, deadline_s: float, details_s: float) -> Facts:
    reported_timeout_s = deadline_s - asyncio.get_running_loop().time()
    unchecked: list[str] = []
    (cluster, skew_ms), reported = await asyncio.gather(
        _describe_cluster(admin, deadline_s - details_s),
        _query(
            "the findings of the processes",
            admin.operations.list_findings(timeout_s=reported_timeout_s * PROCESS_TIMEOUT_SHARE),
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
        reported.value or (),
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


def _lines(found: Sequence[DoctorFinding], snode_addresses: Sequence[str]) -> list[str]:
    if not found:
        return [f"all is well at {', '.join(snode_addresses)}"]
    lines = []
    for finding in found:
        process = f" ({finding.process})" if finding.process else ""
        impact = f"\n  so {finding.impact}" if finding.impact else ""
        mark = "✗" if finding.critical else "!"
        lines.append(f"{mark} {finding.name}{process}: {finding.observed}{impact}\n  → {finding.remedy}")
    return lines
