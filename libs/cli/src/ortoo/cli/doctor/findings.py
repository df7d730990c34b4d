"""Derives findings, with their causes and remedies, from facts; without I/O."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ortoo.client import (
    ClusterFinding,
    ClusterInfo,
    DeletedTopic,
    EnodeMembers,
    GroupInfo,
    OfferedTopic,
    TopicDescription,
)
from ortoo.client.admin.address_check import Examination, Speaks

SKEW_MS_MAX = 2_000
"""A larger clock difference delays delayed messages and falsifies ages."""
NAMES_MAX = 5
PORTS = "by default snodes listen on 8081, name servers on 8071, enodes on 8091"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem: a short name that never changes, the observation, and the remedy."""

    name: str
    seen: str
    cure: str
    serious: bool = True
    consequence: str = ""
    """The effect of the problem."""
    process: str = ""
    """The process that reports it; empty for an observation of this command."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The observations in a cluster that answers."""

    cluster: ClusterInfo
    skew_ms: int
    """The clock of the snode minus the clock of this machine, in ms."""
    name_server_error: str = ""
    """The error of a call that needs the name server; empty without one."""
    snodes: Sequence[Examination] = ()
    """The addresses that the cluster reports to other clients."""
    topic: str = ""
    topic_described: TopicDescription | None = None
    topic_error: str = ""
    """The reason why the topic could not be described although it may exist."""
    topics: Sequence[str] = ()
    group: str = ""
    groups: Sequence[GroupInfo] = ()
    lag_messages: int = 0
    members: int | None = None
    """Number of consumers of the group now, without those that pop; None = not queried."""
    pops: bool = False
    """Whether the group pops the topic, so that it has no members."""
    offered: Sequence[OfferedTopic] = ()
    deleted: Sequence[DeletedTopic] = ()
    inside: Sequence[ClusterFinding] = ()
    """Problems that the processes report."""
    inside_error: str = ""
    """The reason why they could not be queried."""
    enode_members: Sequence[EnodeMembers] = ()


def of_address(seen: Examination) -> Iterator[Finding]:
    """The problems with the given address; none when a snode serves there."""
    address, host = seen.address, seen.address.rpartition(":")[0]
    if seen.proxy_variable:
        told = f"{seen.proxy_variable} is set, so gRPC uses that proxy, which rarely supports it"
        cure = f"add {host} to no_proxy, or unset {seen.proxy_variable} for this command"
        yield Finding("proxy", told, cure, serious=False)
    if not seen.well_formed:
        yield _malformed(address)
    elif not seen.resolves:
        cure = "check the spelling; the name of a Service is valid only inside its Kubernetes cluster"
        yield Finding("unknown host", f"the name {host} cannot be resolved", cure)
    elif seen.refused:
        cure = f"start it (`ortoo dev`, or ortoo-snode), or fix the port: {PORTS}"
        yield Finding("connection refused", f"nothing listens on {address}", cure)
    elif not seen.connects:
        cure = "check that the machine runs and that firewall, security group and NetworkPolicy allow the port"
        yield Finding("unreachable", f"{address} does not answer at all", cure)
    else:
        yield from _of_speech(seen)


def _malformed(address: str) -> Finding:
    if "://" in address:
        bare = address.partition("://")[2].rstrip("/")
        return Finding("URL", f"{address} is a URL", f"use host:port without a scheme: {bare}")
    return Finding("malformed address", f"{address!r} is not host:port", "use one such as localhost:8081")


def _of_speech(seen: Examination) -> Iterator[Finding]:
    address = seen.address
    if seen.speaks is Speaks.TLS:
        cure = "set ORTOO_TLS_CA_FILE to the roots of its certificate, or connect to the plain port"
        yield Finding("TLS", f"{address} speaks TLS; this command does not, or does not trust it", cure)
    elif seen.speaks is Speaks.HTTP1:
        cure = f"use the gRPC port ({PORTS}); 9464 and similar ones are for Prometheus"
        yield Finding("HTTP/1", f"{address} is a web server, or a port for metrics", cure)
    elif seen.speaks in (Speaks.OTHER, Speaks.HANGS_UP):
        told = f"{address} does not speak gRPC ({seen.speaks.value})"
        yield Finding("other protocol", told, f"use the address of a snode: {PORTS}")
    elif seen.speaks is Speaks.NOTHING:
        cure = "the process is frozen or starved; check its CPU time and its log, then restart it"
        yield Finding("frozen", f"{address} accepts the connection and sends nothing", cure)
    elif seen.role in ("name server", "enode"):
        cure = f"clients connect only to snodes: {PORTS}"
        yield Finding(f"{seen.role}'s port", f"{address} is the {seen.role}'s address", cure)
    elif not seen.role:
        told = f"{address} is a gRPC server, but not one of Ortoo"
        yield Finding("other gRPC server", told, f"use the address of a snode: {PORTS}")
    elif not seen.serving:
        cure = "it is starting or shutting down; wait, or connect to another snode"
        yield Finding("draining", f"the snode at {address} does not accept requests", cure, serious=False)


def of_cluster(facts: Facts) -> list[Finding]:
    """The problems behind a snode that answers."""
    outside = [*_of_processes(facts), *_of_members(facts), *_of_directory(facts), *_of_topic(facts), *_of_group(facts)]
    inside = list(_from_inside(facts))
    known = {finding.name for finding in inside}
    return [*inside, *(finding for finding in outside if finding.name not in known)]


def _from_inside(facts: Facts) -> Iterator[Finding]:
    """The problems that the processes report."""
    if facts.inside_error:
        cure = "ask as a user with the rights of an admin (docs/operations/access.md), or upgrade the snode"
        seen = f"the processes were not asked for what they know themselves: {facts.inside_error}"
        yield Finding("processes not queried", seen, cure, serious=False)
    for one in facts.inside:
        yield Finding(one.name, one.seen, one.cure, one.serious, one.consequence, one.process)


def _of_processes(facts: Facts) -> Iterator[Finding]:
    if abs(facts.skew_ms) > SKEW_MS_MAX:
        ahead = "ahead of" if facts.skew_ms > 0 else "behind"
        seen = f"the snode's clock is {abs(facts.skew_ms) / 1000:.1f} s {ahead} this machine's"
        cure = "synchronise both clocks (chrony, systemd-timesyncd): delayed messages and ages depend on them"
        yield Finding("clock skew", seen, cure)
    if facts.name_server_error:
        cure = "start it, or check its database. Messages still flow, but topics and groups cannot change"
        yield Finding("name server unavailable", f"no name server answers: {facts.name_server_error}", cure)
    enodes = facts.cluster.enodes
    if not enodes:
        cure = "start ortoo-enode with the same name servers (-n) as the snode"
        yield Finding("no enode", "no enode has ever registered, so messages cannot be stored", cure)
    for enode in enodes:
        if not enode.alive:
            cure = "start it again with its volume; its messages are in its log, and its queues wait for it"
            yield Finding("enode unavailable", f"the lease of enode {enode.name} ({enode.address}) ran out", cure)
        if enode.index_nearly_full:
            seen = f"the index of enode {enode.name} is nearly full; when it is full, sends to some queues are rejected"
            cure = (
                "delete topics with many queues (ortoo topic list, ortoo topic delete NAME --at-once), or "
                "raise store.index_bytes_max or store.segment_bytes, or lower store.retention_age_ms"
            )
            yield Finding("index nearly full", seen, cure, serious=False)
    if facts.cluster.inner_ports_open:
        seen = "access rules are in force without a cluster token, so clients that reach an enode directly bypass them"
        cure = (
            "give all roles one cluster_token_file, or mutual TLS (docs/operations/inner-ports.md), or allow only the "
            "cluster to reach them"
        )
        yield Finding("inner ports", seen, cure, serious=False)
    for snode in facts.snodes:
        if not snode.connects:
            cure = "set advertised_address of that snode to host:port that clients can reach"
            seen = f"clients are given the address {snode.address} of a snode, which cannot be reached from here"
            yield Finding("advertised address", seen, cure)


def _of_members(facts: Facts) -> Iterator[Finding]:
    """The problems with the replicas of enodes."""
    for enode in facts.enode_members:
        name, show = enode.enode, f"ortoo enode members {enode.enode}"
        away = [one.number for one in enode.members if one.state == "away"]
        here = len([one for one in enode.members if one.state in ("leading", "following")])
        numbers = ", ".join(map(str, away))
        if enode.leader is None and enode.set_id:
            seen = f"enode {name} has no leader; {here} replicas report, and the quorum is {enode.majority}"
            cure = (
                f"start the others with their volumes: replicas {numbers}"
                if here < enode.majority
                else (
                    f"wait a few seconds; otherwise check {show} and a name server's log and database, "
                    f"or with two replicas use ortoo enode elect {name} MEMBER"
                )
            )
            yield Finding("no leader", seen, cure)
        if away:
            seen = (
                f"enode {name} is under-replicated: of its replicas {numbers} {'is' if len(away) == 1 else 'are'} down"
            )
            cure = (
                f"start it with its volume; if that is lost, with an empty disk, "
                f"ortoo enode add {name} {away[0]}, ortoo enode remove {name} {away[0]} --disk OLD"
            )
            yield Finding("replica unavailable", seen, cure, serious=len(away) >= enode.majority)
        for one in enode.members:
            if one.state == "waiting":
                seen = f"replica {one.number} of enode {name} has an empty disk and is not in the replica set yet"
                cure = f"ortoo enode add {name} {one.number}, and remove the one that it replaces"
                yield Finding("empty disk", seen, cure, serious=False)
        led = next((one.epoch for one in enode.members if one.number == enode.leader), 0)
        if behind := [one.number for one in enode.members if one.state == "following" and one.epoch < led]:
            seen = f"replicas {', '.join(map(str, behind))} of enode {name} do not know epoch {led} yet"
            cure = f"wait a few seconds. If the finding remains, the leader cannot reach them: {show}, read their logs"
            yield Finding("stale epoch", seen, cure, serious=False)


def _of_directory(facts: Facts) -> Iterator[Finding]:
    """Topics that enodes hold and that the name server does not list, or lists as deleted."""
    good = [one.name for one in facts.offered if not one.obstacle]
    if good:
        seen = f"enodes hold {_some(good)}, which the name server's directory lacks, so no client can read them"
        cure = (
            f"take them in: ortoo topic adopt {good[0] if len(good) == 1 else '--all'} (docs/operations/directory.md)"
        )
        yield Finding("unregistered topics", seen, cure)
    for one in [one for one in facts.offered if one.obstacle][:NAMES_MAX]:
        seen = f"enodes hold a topic {one.name} that the directory does not know"
        yield Finding("unregistered topics", seen, one.obstacle)
    if facts.deleted:
        first = facts.deleted[0].topic.name
        seen = f"{_some([one.topic.name for one in facts.deleted])} deleted; their messages still take space"
        cure = f"ortoo topic undelete {first} restores it until its deletion is due (ortoo topic deleted)"
        yield Finding("deleted topics", seen, cure, serious=False)


def _some(names: Sequence[str]) -> str:
    """The first NAMES_MAX names and the number of the others."""
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"{'topic' if len(names) == 1 else 'topics'} {', '.join(names[:NAMES_MAX])}{more}"


def _of_topic(facts: Facts) -> Iterator[Finding]:
    if not facts.topic:
        return
    if facts.topic_error:
        cure = "an enode is frozen or the snode cannot reach it; check its CPU time and the network"
        yield Finding("topic unreachable", f"topic {facts.topic} cannot be described: {facts.topic_error}", cure)
        return
    if facts.topic_described is None:
        cure = f"create it: ortoo topic create {facts.topic}{_near(facts.topic, facts.topics)}"
        yield Finding("unknown topic", f"there is no topic {facts.topic}", cure)
        return
    topic = facts.topic_described.topic
    if topic.permission != "read_write":
        cure = f"ortoo topic update {topic.name} changes it"
        yield Finding("permission", f"topic {topic.name} is {topic.permission}", cure)
    alive = {enode.name for enode in facts.cluster.enodes if enode.alive}
    placed = {placement.enode for placement in topic.placements}
    if placed and not placed & alive:
        seen = f"topic {topic.name} has queues on {', '.join(sorted(placed))} only, and none of these is alive"
        yield Finding("topic unreachable", seen, "start one of these enodes, or place the topic on another too")


def _of_group(facts: Facts) -> Iterator[Finding]:
    if not facts.group:
        return
    group = next((one for one in facts.groups if one.name == facts.group), None)
    if group is None:
        near = _near(facts.group, [one.name for one in facts.groups])
        cure = f"a group is created by its first consumer; check the name{near}"
        yield Finding("unknown group", f"there is no group {facts.group}", cure)
    elif not group.consume_enabled:
        cure = f"switch it on: grpcurl ... ortoo.v1.AdminService/UpdateGroup (ortoo group describe {group.name})"
        yield Finding("group disabled", f"group {group.name} may not consume", cure)
    elif facts.lag_messages and facts.members == 0 and not facts.pops:
        seen = f"group {group.name} is {facts.lag_messages} messages behind, and it has no consumer"
        yield Finding("no consumers", seen, "start a consumer of this group, and look at its log")


def _near(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f", or did you mean {near[0]}?" if near else ""
