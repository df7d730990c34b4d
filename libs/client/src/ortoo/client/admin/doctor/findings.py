"""Derives findings, with their causes and remedies, from facts; without I/O."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ortoo.client.admin.address_check import AddressCheck, SpokenProtocol
from ortoo.client.admin.descriptions import ClusterInfo, GroupInfo
from ortoo.client.admin.enodes.replicas import ReplicaSetInfo
from ortoo.client.admin.operations import ClusterFinding, ExaminedProcess
from ortoo.client.admin.topics import DeletedTopic, OrphanedTopic, TopicDescription

SKEW_MS_MAX = 2_000
"""A larger clock difference delays delayed messages and falsifies ages."""
NAMES_MAX = 5
PORTS = "by default snodes listen on 8081, name servers on 8071, enodes on 8091"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One problem: a short name that never changes, the observation, and the remedy."""

    name: str
    observed: str
    remedy: str
    critical: bool = True
    impact: str = ""
    """The effect of the problem."""
    process: str = ""
    """The process that reports the problem; empty for an observation of this command."""
    since_ms: int = 0
    """Since when each check of that process has found it; 0 = not known."""
    seen_from_ms: int = 0
    """Since when that process has checked. If `since_ms` is equal, the problem may be older."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts from which `cluster_findings` derives the problems of a cluster whose snode answers."""

    cluster: ClusterInfo
    skew_ms: int
    """The clock of the snode minus the clock of this machine, in ms."""
    name_server_error: str = ""
    """The error of a call that needs the name server; empty without an error."""
    snodes: Sequence[AddressCheck] = ()
    """The addresses that the cluster reports to other clients."""
    topic: str = ""
    topic_described: TopicDescription | None = None
    topic_error: str = ""
    """The reason why the topic could not be described although it may exist."""
    topics: Sequence[str] = ()
    group: str = ""
    groups: Sequence[GroupInfo] = ()
    lag_messages: int = 0
    consumer_count: int | None = None
    """Number of consumers of the group now; None = not queried."""
    orphaned: Sequence[OrphanedTopic] = ()
    deleted: Sequence[DeletedTopic] = ()
    reported: Sequence[ClusterFinding] = ()
    """Problems that the processes report."""
    processes: Sequence[ExaminedProcess] = ()
    """The processes that reported."""
    reported_error: str = ""
    """The reason why the processes could not be queried."""
    replica_sets: Sequence[ReplicaSetInfo] = ()
    unchecked: Sequence[str] = ()
    """The subjects of queries that were not answered in time, about which nothing is known."""


def address_findings(check: AddressCheck) -> Iterator[DoctorFinding]:
    """The problems with the checked address; no problems if a snode serves at the address."""
    address, host = check.address, check.address.rpartition(":")[0]
    if check.proxy_variable:
        observed = f"{check.proxy_variable} is set, so gRPC uses that proxy, which rarely supports it"
        remedy = f"add {host} to no_proxy, or unset {check.proxy_variable} for this command"
        yield DoctorFinding("proxy", observed, remedy, critical=False)
    if not check.well_formed:
        yield _malformed(address)
    elif not check.resolves:
        remedy = "check the spelling; the name of a Service is valid only inside its Kubernetes cluster"
        yield DoctorFinding("unknown host", f"the name {host} cannot be resolved", remedy)
    elif check.refused:
        remedy = f"start it (`ortoo dev`, or ortoo-snode), or fix the port: {PORTS}"
        yield DoctorFinding("connection refused", f"nothing listens on {address}", remedy)
    elif not check.connects:
        remedy = "check that the machine runs and that firewall, security group and NetworkPolicy allow the port"
        yield DoctorFinding("unreachable", f"{address} does not answer at all", remedy)
    else:
        yield from _protocol_findings(check)


def _malformed(address: str) -> DoctorFinding:
    if "://" in address:
        bare = address.partition("://")[2].rstrip("/")
        return DoctorFinding("URL", f"{address} is a URL", f"use host:port without a scheme: {bare}")
    return DoctorFinding("malformed address", f"{address!r} is not host:port", "use one such as localhost:8081")


def _protocol_findings(check: AddressCheck) -> Iterator[DoctorFinding]:
    address = check.address
    if check.handshake_fault is not None:
        observed = f"no TLS connection to {address}: {check.handshake_fault.observed}"
        yield DoctorFinding("TLS handshake failed", observed, check.handshake_fault.remedy)
    elif check.protocol is SpokenProtocol.TLS:
        remedy = "set ORTOO_TLS_CA_FILE to the roots of its certificate, or connect to the plain port"
        yield DoctorFinding("TLS", f"{address} speaks TLS; this command does not, or does not trust it", remedy)
    elif check.protocol is SpokenProtocol.HTTP1:
        remedy = f"use the gRPC port ({PORTS}); 9464 and similar ones are for Prometheus"
        yield DoctorFinding("HTTP/1", f"{address} is a web server, or a port for metrics", remedy)
    elif check.protocol in (SpokenProtocol.OTHER, SpokenProtocol.CLOSES):
        observed = f"{address} does not speak gRPC ({check.protocol.value})"
        yield DoctorFinding("other protocol", observed, f"use the address of a snode: {PORTS}")
    elif check.protocol is SpokenProtocol.NOTHING:
        remedy = "the process is frozen or starved; check its CPU time and its log, then restart it"
        yield DoctorFinding("frozen", f"{address} accepts the connection and sends nothing", remedy)
    elif check.role in ("name server", "enode"):
        remedy = f"clients connect only to snodes: {PORTS}"
        yield DoctorFinding(f"{check.role}'s port", f"{address} is the {check.role}'s address", remedy)
    elif not check.role:
        observed = f"{address} is a gRPC server, but not one of Ortoo"
        yield DoctorFinding("other gRPC server", observed, f"use the address of a snode: {PORTS}")
    elif not check.serving:
        remedy = "it is starting or shutting down; wait, or connect to another snode"
        yield DoctorFinding("draining", f"the snode at {address} does not accept requests", remedy, critical=False)


def cluster_findings(facts: Facts) -> list[DoctorFinding]:
    """The problems of a cluster whose snode answers."""
    derived = [
        *_process_findings(facts),
        *_replica_findings(facts),
        *_directory_findings(facts),
        *_topic_findings(facts),
        *_group_findings(facts),
        *_unchecked_findings(facts),
    ]
    reported = list(_reported_findings(facts))
    reported_names = {finding.name for finding in reported}
    return [*reported, *(finding for finding in derived if finding.name not in reported_names)]


def _reported_findings(facts: Facts) -> Iterator[DoctorFinding]:
    """The problems that the processes report."""
    if facts.reported_error:
        remedy = "ask as a user with the permissions of an admin (docs/operations/access.md), or upgrade the snode"
        observed = f"the processes were not asked for what they know themselves: {facts.reported_error}"
        yield DoctorFinding("processes not queried", observed, remedy, critical=False)
    for one in facts.reported:
        yield DoctorFinding(
            one.name,
            one.observed,
            one.remedy,
            one.critical,
            one.impact,
            one.process,
            one.since_ms,
            one.seen_from_ms,
        )


def _process_findings(facts: Facts) -> Iterator[DoctorFinding]:
    if abs(facts.skew_ms) > SKEW_MS_MAX:
        ahead = "ahead of" if facts.skew_ms > 0 else "behind"
        observed = f"the snode's clock is {abs(facts.skew_ms) / 1000:.1f} s {ahead} this machine's"
        remedy = "synchronise both clocks (chrony, systemd-timesyncd): delayed messages and ages depend on them"
        yield DoctorFinding("clock skew", observed, remedy)
    if facts.name_server_error:
        remedy = "start it, or check its database. Messages still flow, but topics and groups cannot change"
        yield DoctorFinding("name server unavailable", f"no name server answers: {facts.name_server_error}", remedy)
    enodes = facts.cluster.enodes
    if not enodes:
        remedy = "start ortoo-enode with the same name servers (-n) as the snode"
        yield DoctorFinding("no enode", "no enode has ever registered, so messages cannot be stored", remedy)
    for enode in enodes:
        if not enode.alive:
            remedy = "start it again with its volume; its messages are in its log, and its queues wait for it"
            yield DoctorFinding(
                "enode unavailable", f"enode {enode.name} ({enode.address or 'no address known'}) has no lease", remedy
            )
        if enode.index_nearly_full:
            observed = (
                f"the index of enode {enode.name} is nearly full; when it is full, sends to some queues are rejected"
            )
            remedy = (
                "delete topics with many queues (ortoo topic list, ortoo topic delete NAME --at-once), or "
                "raise store.index_bytes_max or store.segment_bytes, or lower store.retention_age_ms"
            )
            yield DoctorFinding("index nearly full", observed, remedy, critical=False)
    if facts.cluster.inner_ports_open:
        observed = (
            "access rules are in force without a cluster token, so clients that reach an enode directly bypass them"
        )
        remedy = (
            "give all roles one cluster_token_file, or mutual TLS (docs/operations/inner-ports.md), or allow only the "
            "cluster to reach them"
        )
        yield DoctorFinding("inner ports", observed, remedy, critical=False)
    for snode in facts.snodes:
        if not snode.connects:
            remedy = "set advertised_address of that snode to host:port that clients can reach"
            observed = f"clients are given the address {snode.address} of a snode, which cannot be reached from here"
            yield DoctorFinding("advertised address", observed, remedy)


def _replica_findings(facts: Facts) -> Iterator[DoctorFinding]:
    """The problems with the replicas of enodes."""
    for enode in facts.replica_sets:
        name, show = enode.enode, f"ortoo enode replicas {enode.enode}"
        away = [one.number for one in enode.replicas if one.state == "away"]
        reporting = len([one for one in enode.replicas if one.state in ("leading", "following")])
        numbers = ", ".join(map(str, away))
        if enode.leader is None and enode.set_id:
            observed = f"enode {name} has no leader; {reporting} replicas report, and the quorum is {enode.majority}"
            remedy = (
                f"start the others with their volumes: replicas {numbers}"
                if reporting < enode.majority
                else (
                    f"wait a few seconds; otherwise check {show} and a name server's log and database, "
                    f"or with two replicas use ortoo enode elect {name} REPLICA"
                )
            )
            yield DoctorFinding("no leader", observed, remedy)
        if away:
            observed = (
                f"enode {name} is under-replicated: of its replicas {numbers} {'is' if len(away) == 1 else 'are'} down"
            )
            remedy = (
                f"start it with its volume. If the volume is lost: ortoo enode remove {name} {away[0]}, start it with "
                f"an empty disk, then ortoo enode add {name} {away[0]}"
                if reporting >= enode.majority
                else f"start them with their volumes until {enode.majority} replicas run. If the volumes are lost, "
                "continue with the remaining disk (docs/operations/replicas.md)"
            )
            yield DoctorFinding("replica unavailable", observed, remedy, critical=len(away) >= enode.majority)
        for one in enode.replicas:
            if one.state == "waiting":
                observed = f"replica {one.number} of enode {name} has an empty disk and is not in the replica set yet"
                remedy = f"ortoo enode add {name} {one.number}, and remove the one that it replaces"
                yield DoctorFinding("empty disk", observed, remedy, critical=False)
        leader_epoch = next((one.epoch for one in enode.replicas if one.number == enode.leader), 0)
        if behind := [one.number for one in enode.replicas if one.state == "following" and one.epoch < leader_epoch]:
            observed = f"replicas {', '.join(map(str, behind))} of enode {name} do not know epoch {leader_epoch} yet"
            remedy = (
                f"wait a few seconds. If the finding remains, the leader cannot reach them: {show}, read their logs"
            )
            yield DoctorFinding("stale epoch", observed, remedy, critical=False)


def _directory_findings(facts: Facts) -> Iterator[DoctorFinding]:
    """Topics that enodes hold and that the name server does not list, or lists as deleted."""
    adoptable = [one.name for one in facts.orphaned if not one.conflict]
    if adoptable:
        observed = (
            f"enodes hold {_list_topics(adoptable)}, which the name server's directory lacks, "
            f"so no client can read them"
        )
        chosen = adoptable[0] if len(adoptable) == 1 else "--all"
        remedy = f"take them in: ortoo topic adopt {chosen} (docs/operations/directory.md)"
        yield DoctorFinding("unregistered topics", observed, remedy)
    for one in [one for one in facts.orphaned if one.conflict][:NAMES_MAX]:
        observed = f"enodes hold a topic {one.name} that the directory does not know"
        yield DoctorFinding("unregistered topics", observed, one.conflict)
    if facts.deleted:
        first = facts.deleted[0].topic.name
        observed = f"{_list_topics([one.topic.name for one in facts.deleted])} deleted; their messages still take space"
        remedy = f"ortoo topic undelete {first} restores it until its deletion is due (ortoo topic deleted)"
        yield DoctorFinding("deleted topics", observed, remedy, critical=False)


def _list_topics(names: Sequence[str]) -> str:
    """The first NAMES_MAX topic names and the number of further names, as a text."""
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"{'topic' if len(names) == 1 else 'topics'} {', '.join(names[:NAMES_MAX])}{more}"


def _topic_findings(facts: Facts) -> Iterator[DoctorFinding]:
    if not facts.topic:
        return
    if facts.topic_error:
        remedy = "an enode is frozen or the snode cannot reach it; check its CPU time and the network"
        yield DoctorFinding(
            "topic unreachable", f"topic {facts.topic} cannot be described: {facts.topic_error}", remedy
        )
        return
    if facts.topic_described is None:
        remedy = f"create it: ortoo topic create {facts.topic}{_suggestion(facts.topic, facts.topics)}"
        yield DoctorFinding("unknown topic", f"there is no topic {facts.topic}", remedy)
        return
    topic = facts.topic_described.topic
    if topic.permission != "read_write":
        remedy = f"ortoo topic update {topic.name} --permission read_write"
        yield DoctorFinding("permission", f"topic {topic.name} is {topic.permission}", remedy)
    alive = {enode.name for enode in facts.cluster.enodes if enode.alive}
    placed = {placement.enode for placement in topic.placements}
    if placed and not placed & alive:
        observed = f"topic {topic.name} has queues on {', '.join(sorted(placed))} only, and none of these is alive"
        yield DoctorFinding(
            "topic unreachable", observed, "start one of these enodes, or place the topic on another too"
        )


def _group_findings(facts: Facts) -> Iterator[DoctorFinding]:
    if not facts.group:
        return
    group = next((one for one in facts.groups if one.name == facts.group), None)
    if group is None:
        near = _suggestion(facts.group, [one.name for one in facts.groups])
        remedy = f"a group is created by its first consumer; check the name{near}"
        yield DoctorFinding("unknown group", f"there is no group {facts.group}", remedy)
    elif not group.consume_enabled:
        remedy = f"ortoo group update {group.name} --consume"
        yield DoctorFinding("group disabled", f"group {group.name} may not consume", remedy)
    elif facts.lag_messages and facts.consumer_count == 0:
        observed = f"group {group.name} is {facts.lag_messages} messages behind, and it has no consumer"
        yield DoctorFinding("no consumers", observed, "start a consumer of this group, and look at its log")


def _unchecked_findings(facts: Facts) -> Iterator[DoctorFinding]:
    """The checks that took too long. A timeout does not show that a process is unavailable."""
    if facts.unchecked:
        observed = f"no answer in time about {', '.join(sorted(facts.unchecked))}"
        remedy = "wait longer for answers: ortoo doctor --patience 10. Lists of many topics take longer"
        yield DoctorFinding("checks incomplete", observed, remedy, critical=False)


def _suggestion(name: str, names: Sequence[str]) -> str:
    matches = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f", or did you mean {matches[0]}?" if matches else ""
