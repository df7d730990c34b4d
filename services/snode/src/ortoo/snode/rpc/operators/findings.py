"""FindingsService of a snode: it queries every process of the cluster, and compares their answers."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from ortoo.common.errors import OrtooError
from ortoo.common.errors.finding_history import FindingHistory
from ortoo.common.errors.findings import Finding
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.errors import Context
from ortoo.common.telemetry.findings_service import NAME as NAME
from ortoo.common.telemetry.findings_service import LocalFindings, findings_of, findings_to
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.membership.group_members import Subscription
from ortoo.snode.membership.group_membership import POP_GROUP_PREFIX, Membership
from ortoo.snode.policy import Policy
from ortoo.snode.rpc.operators.comparisons import (
    NAME_SERVER,
    ProbedProcess,
    away_enodes,
    called_process,
    differing_clocks,
    differing_directories,
    differing_membership_stores,
    differing_versions,
    unexamined_processes,
    unknown_name_servers,
    unreachable_processes,
)
from ortoo.v1 import findings_pb2 as pb
from ortoo.v1.findings_pb2_grpc import FindingsServiceServicer, FindingsServiceStub

TIMEOUT_MS = 2_000
USUAL_S_MIN = 1.0
"""With a shorter timeout, an answer changes nothing about since when problems are seen."""
LISTED_MAX = 100
"""Maximum number of listed topics whose group has different filters."""
SHOWN_MAX = 3
"""Maximum number of filters that one finding shows."""
PEER_TIMEOUT_SHARE = 0.5
"""Share of the time limit that remains for calls that follow the answer of another process."""


@dataclass(eq=False)
class ClusterFindings(FindingsServiceServicer):
    """The service that lists findings of this process or of the cluster.

    All processes are queried at once, each with a timeout.
    """

    own: LocalFindings
    runtime: Runtime
    cluster: ClusterView
    policy: Policy
    membership: Membership
    _filters: FindingHistory = field(default_factory=FindingHistory)
    _away: FindingHistory = field(default_factory=FindingHistory)
    _compared: FindingHistory = field(default_factory=FindingHistory)
    """Findings of comparisons, which are made only for a request."""

    async def check(self) -> None:
        """Examine what this process knows without calls, so that it is known since when each finding is seen."""
        now_ms = self.runtime.clock.now_ms()
        await self.own.check()
        self._filters.check(differing_filters(self.membership), now_ms)
        self._away.check(away_enodes(self.cluster.directory, ()), now_ms)

    async def ListFindings(self, request: pb.ListFindingsRequest, context: Context) -> pb.ListFindingsResponse:
        """The current findings of this process or of all processes."""
        timeout_s = (request.timeout_ms or TIMEOUT_MS) / 1000
        own, now_ms = await self.own.answer(), self.runtime.clock.now_ms()
        own.findings.extend(findings_to(self._filters.check(differing_filters(self.membership), now_ms)))
        if request.local_only:
            if request.include_reachability:
                with_lease = (one for one in self._enodes() if not one.is_away)
                probed = await self._probe_all([*self._name_servers(), *with_lease], timeout_s)
                own.called.extend(map(called_process, probed))
            return own
        probed = await self._probe_all([*self._name_servers(), *self._enodes(), *self._other_snodes()], timeout_s)
        probed += await self._probe_all(unknown_name_servers(probed), timeout_s * PEER_TIMEOUT_SHARE)
        answers = [own, *(one.answer for one in probed if one.answer is not None)]
        # Several snodes report the same group, because each of them has members of it.
        found = list(dict.fromkeys(finding for answer in answers for finding in findings_of(answer)))
        now_ms = self.runtime.clock.now_ms()
        # Within a short time some processes do not answer, so that problems seem to have ended, or to be others.
        is_usual = timeout_s >= USUAL_S_MIN
        found += self._away.check(away_enodes(self.cluster.directory, probed), now_ms, is_usual=is_usual)
        compared = chain(
            unreachable_processes(self.own.own.name, probed),
            differing_directories(own, probed),
            differing_membership_stores(answers),
            differing_clocks(probed),
            differing_versions(answers),
            unexamined_processes(self.cluster.directory, probed),
        )
        found += self._compared.check(compared, now_ms, is_usual=is_usual)
        processes = [process for answer in answers for process in answer.processes]
        return pb.ListFindingsResponse(findings=findings_to(found), processes=processes)

    def _name_servers(self) -> Iterator[ProbedProcess]:
        for address in self.cluster.name_server.servers.addresses:
            yield ProbedProcess(NAME_SERVER, address, address)

    def _enodes(self) -> Iterator[ProbedProcess]:
        for enode in self.cluster.directory.expected_enodes():
            if enode.address:
                yield ProbedProcess("enode", enode.name, enode.address, is_away=not enode.alive)

    def _other_snodes(self) -> Iterator[ProbedProcess]:
        for snode in self.cluster.directory.snodes():
            if snode.alive and snode.name != self.own.own.name:
                yield ProbedProcess("snode", snode.name, snode.cluster_address or snode.address)

    async def _probe_all(self, processes: Iterable[ProbedProcess], timeout_s: float) -> list[ProbedProcess]:
        return await asyncio.gather(*(self._probe(one, timeout_s) for one in processes))

    async def _probe(self, process: ProbedProcess, timeout_s: float) -> ProbedProcess:
        request = pb.ListFindingsRequest(local_only=True)
        channel = self.runtime.channels.channel_to(process.address)
        if process.is_away:
            timeout_s *= PEER_TIMEOUT_SHARE
        begun_ms = self.runtime.clock.now_ms()
        try:
            if process.role == "snode":
                channel = await self.policy.forwarding_channel(channel)
                request.include_reachability = True
                request.timeout_ms = int(timeout_s * PEER_TIMEOUT_SHARE * 1000)
            with rpc_errors(f"{process.role} {process.name}", is_internal=True):
                answer = await FindingsServiceStub(channel).ListFindings(request, timeout=timeout_s)
        except OrtooError as error:
            return replace(process, error=error)
        if process.is_away and process.name not in (one.name for one in answer.processes):
            return process  # another process has its address now
        ended_ms = self.runtime.clock.now_ms()
        # The clock of a snode that calls other processes is read before these calls.
        middle_ms = begun_ms if process.role == "snode" else (begun_ms + ended_ms) // 2
        ahead_ms = answer.processes[0].now_ms - middle_ms if answer.processes else 0
        return replace(process, answer=answer, ahead_ms=ahead_ms)


def differing_filters(membership: Membership) -> Iterator[Finding]:
    """Yield a finding for each topic that the members of one group filter differently; at most LISTED_MAX."""
    filters: dict[tuple[str, str], set[str]] = {}
    for group in membership.groups():
        for member in membership.members(group).values():
            for one in () if member.broadcast else member.subscriptions:
                place = (group.removeprefix(POP_GROUP_PREFIX), one.topic)
                filters.setdefault(place, set()).add(_filter_text(one))
    differing = ((place, texts) for place, texts in filters.items() if len(texts) > 1)
    for (group, topic), texts in islice(differing, LISTED_MAX):
        yield Finding(
            "filters differ",
            f"members of group {group} subscribe to {topic} with {len(texts)} filters "
            f"({'; '.join(sorted(texts)[:SHOWN_MAX])})",
            "a pull skips messages that only other members want, and a push session waits up to 10 min before them",
            "give all members one filter, or a group for each filter",
            subject=f"{group} {topic}",
        )


def _filter_text(subscription: Subscription) -> str:
    tags = "" if subscription.tag_expression == "*" else subscription.tag_expression
    return " ".join(filter(None, (tags, subscription.sql_expression))) or "none"
