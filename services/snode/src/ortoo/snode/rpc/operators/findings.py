"""FindingsService of a snode: it queries every process of the cluster, and compares their answers."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from ortoo.common.errors import OrtooError, Unsupported
from ortoo.common.errors.findings import Finding, Findings
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.errors import Context
from ortoo.common.telemetry.findings_service import NAME as NAME
from ortoo.common.telemetry.findings_service import LocalFindings, findings_of, findings_to
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.membership.group_members import Subscription
from ortoo.snode.membership.group_membership import Membership
from ortoo.snode.policy import Policy
from ortoo.v1 import findings_pb2 as pb
from ortoo.v1.findings_pb2_grpc import FindingsServiceServicer, FindingsServiceStub

TIMEOUT_MS = 2_000
LISTED_MAX = 100
"""Maximum number of listed topics whose group has different filters."""
SHOWN_MAX = 3
"""Maximum number of filters that one finding shows."""
SKEW_MS_MAX = 2_000
"""Limit of clock differences; larger ones make delayed messages late and ages wrong."""


@dataclass(frozen=True, slots=True)
class ProbedProcess:
    """A process of the cluster, and its answer or error."""

    role: str
    name: str
    address: str
    answer: pb.ListFindingsResponse | None = None
    error: OrtooError | None = None
    ahead_ms: int = 0
    """The time by which the clock of the process is ahead of this snode's clock."""


@dataclass(eq=False)
class ClusterFindings(FindingsServiceServicer):
    """The service that lists findings of this process or of the cluster.

    All processes are queried at once, each with a timeout.
    """

    own: Findings
    runtime: Runtime
    cluster: ClusterView
    policy: Policy
    membership: Membership

    async def ListFindings(self, request: pb.ListFindingsRequest, context: Context) -> pb.ListFindingsResponse:
        """The current findings of this process or of all processes."""
        own = LocalFindings(self.own, self.runtime.clock).answer()
        if request.local_only:
            return own
        timeout_s = (request.timeout_ms or TIMEOUT_MS) / 1000
        probed = await asyncio.gather(*(self._probe(one, timeout_s) for one in self._others()))
        answers = [one.answer for one in probed if one.answer is not None]
        found = [finding for answer in (own, *answers) for finding in findings_of(answer)]
        found += chain(
            _silent_processes(probed),
            _differing_clocks(probed),
            _differing_versions((own, *answers)),
            differing_filters(self.membership),
        )
        processes = [process for answer in (own, *answers) for process in answer.processes]
        return pb.ListFindingsResponse(findings=findings_to(found), processes=processes)

    def _others(self) -> Iterator[ProbedProcess]:
        for address in self.cluster.name_server.servers.addresses:
            yield ProbedProcess("name server", address, address)
        for enode in self.cluster.directory.enodes():
            if enode.alive:
                yield ProbedProcess("enode", enode.name, enode.address)
        for snode in self.cluster.directory.snodes():
            if snode.alive and snode.name != self.own.name:
                yield ProbedProcess("snode", snode.name, snode.cluster_address or snode.address)

    async def _probe(self, process: ProbedProcess, timeout_s: float) -> ProbedProcess:
        request = pb.ListFindingsRequest(local_only=True)
        channel = self.runtime.channels.channel_to(process.address)
        begun_ms = self.runtime.clock.now_ms()
        try:
            if process.role == "snode":
                channel = await self.policy.forwarding_channel(channel)
            with rpc_errors(f"{process.role} {process.name}", is_internal=True):
                answer = await FindingsServiceStub(channel).ListFindings(request, timeout=timeout_s)
        except OrtooError as error:
            return replace(process, error=error)
        middle_ms = (begun_ms + self.runtime.clock.now_ms()) // 2
        ahead_ms = answer.processes[0].now_ms - middle_ms if answer.processes else 0
        return replace(process, answer=answer, ahead_ms=ahead_ms)


def differing_filters(membership: Membership) -> Iterator[Finding]:
    """Yield a finding for each topic that the members of one group filter differently; at most LISTED_MAX."""
    filters: dict[tuple[str, str], set[str]] = {}
    for group in membership.groups():
        for member in membership.members(group).values():
            for one in () if member.broadcast else member.subscriptions:
                filters.setdefault((group, one.topic), set()).add(_filter_text(one))
    differing = ((place, texts) for place, texts in filters.items() if len(texts) > 1)
    for (group, topic), texts in islice(differing, LISTED_MAX):
        yield Finding(
            "filters differ",
            f"members of group {group} subscribe to {topic} with {len(texts)} filters "
            f"({'; '.join(sorted(texts)[:SHOWN_MAX])})",
            "a message is lost to the group if the member that gets its queue excludes it",
            "give all members one filter, or a group for each filter",
        )


def _filter_text(subscription: Subscription) -> str:
    tags = "" if subscription.tag_expression == "*" else subscription.tag_expression
    return " ".join(filter(None, (tags, subscription.sql_expression))) or "none"


def _silent_processes(probed: Sequence[ProbedProcess]) -> Iterator[Finding]:
    """Processes with a lease, or an address in the settings, that do not answer."""
    for one in probed:
        if one.error is None or isinstance(one.error, Unsupported):
            continue
        reason = one.error.message
        if one.role == "name server":
            yield Finding(
                "name server unavailable",
                f"the name server {one.address} does not answer: {reason}",
                "when no name server is left, processes do not learn of changes of topics, groups and processes",
                "start it, or check its log and its database; or remove it from namesrv_address",
            )
        else:
            yield Finding(
                f"{one.role} unresponsive",
                f"{one.role} {one.name} ({one.address}) has a lease, and does not answer a snode: {reason}",
                "requests that need it wait and fail" if one.role == "enode" else "its clients wait and fail",
                "check its CPU time, its log and the network; restart it if it is frozen",
            )


def _differing_clocks(probed: Sequence[ProbedProcess]) -> Iterator[Finding]:
    for one in probed:
        if abs(one.ahead_ms) > SKEW_MS_MAX:
            ahead = "ahead of" if one.ahead_ms > 0 else "behind"
            yield Finding(
                "clock differs",
                f"the clock of {one.role} {one.name} is {abs(one.ahead_ms) / 1000:.1f} s {ahead} a snode's",
                "delayed messages are early or late, ages and expiry are wrong",
                "synchronise the clocks (chronyc tracking, timedatectl)",
            )


def _differing_versions(answers: Sequence[pb.ListFindingsResponse]) -> Iterator[Finding]:
    by_version: dict[str, list[str]] = {}
    for answer in answers:
        for process in answer.processes:
            by_version.setdefault(process.version, []).append(f"{process.role} {process.name}")
    if len(by_version) > 1:
        who = "; ".join(f"{version}: {', '.join(names[:5])}" for version, names in sorted(by_version.items()))
        yield Finding(
            "versions differ",
            f"processes run different versions ({who})",
            "features of the newer version do not work everywhere",
            "finish the upgrade: name servers first, then enodes, then snodes",
            critical=False,
        )
