"""Compute what each process of a large cluster needs, from measured unit costs, and the limits that it reaches.

    python -m bench.large_cluster --clients 200000 --enodes-of-a-topic 4

`UNITS` has the unit costs with the benchmarks that measured them. `python -m bench.large_cluster --page` writes the
section of docs/operations/capacity.md.
"""

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.table import ROOT, page_with
from ortoo.enode.log.settings import StoreSettings
from ortoo.namesrv.decisions.groups import GROUPS_MAX
from ortoo.namesrv.decisions.routes.route_changes import DIRECTORY_BYTES_MAX
from ortoo.namesrv.decisions.topics import TOPICS_MAX
from ortoo.namesrv.settings import NamesrvSettings

PAGE = ROOT / "docs/operations/capacity.md"
MARKS = "large cluster"
POLL_S, HEARTBEAT_S, QUERY_S, WAIT_S = 20, 10, 5, 60
"""The intervals of a RocketMQ push consumer's calls, and of a snode's wait at an enode."""
TOPICS_OF_GROUP = 2
"""A group waits for its topic and for its retry topic."""
USED = 0.5
"""The share of a core to plan for."""
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Unit:
    """A measured cost."""

    cost: float
    unit: str
    item: str
    of: str
    measured_by: str


UNITS: Mapping[str, Unit] = {
    "poll": Unit(
        0.5, "ms", "poll of 20 s without messages", "of its snode for each enode of the topic", "`bench.idle_polls`"
    ),
    "call": Unit(0.05, "ms", "heartbeat, query of an assignment or of a route", "of its snode", "`bench.idle_polls`"),
    "call over grpc": Unit(0.2, "ms", 'the same with `transport = "grpc"`', "of its snode", "`bench.idle_polls`"),
    "client": Unit(
        36, "KiB", "connected client", "in its snode, with ten clients on a connection", "`bench.idle_polls`"
    ),
    "wait": Unit(
        0.4,
        "ms",
        "wait at an enode, once a minute for each group, topic and snode",
        "of the enode and of the snode. A pop of one queue costs the same",
        "`bench.idle_polls`",
    ),
    "topic": Unit(0.7, "KiB", "topic in a snode", "with placements that topics share", "`bench.directory_size`"),
    "group": Unit(0.4, "KiB", "group in a snode", "", "a snapshot of 20,000 groups"),
    "row": Unit(20, "µs", "row of a snapshot in a snode", "at most", "the same snapshots"),
    "change": Unit(
        0.2,
        "ms",
        "change of a topic or group",
        "of the name server at most, for each process that watches",
        "`bench.route_watchers`",
    ),
    "topic on the wire": Unit(
        90, "bytes", "topic in the directory", "", "[limits](../limits.md#topics-groups-and-users)"
    ),
    "group on the wire": Unit(
        125, "bytes", "group in the directory", "", "[limits](../limits.md#topics-groups-and-users)"
    ),
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """The size of a cluster. Each client is a push consumer with a group and a topic of its own."""

    enodes: int = 100
    snodes: int = 50
    topics: int = 100_000
    groups: int = 1_000_000
    clients: int = 1_000_000
    enodes_of_a_topic: int = 1
    is_grpc: bool = False


@dataclass(frozen=True, slots=True)
class Need:
    """The needs of the processes of a cluster without messages, without reserve."""

    polls_per_s: float
    """At each snode, as all figures of snodes."""
    heartbeats_per_s: float
    queries_per_s: float
    client_cores: float
    waits_per_s: float
    wait_cores: float
    client_mib: float
    directory_mib: float
    snapshot_s: float
    enode_waits: float
    """Open waits at each enode."""
    enode_waits_per_s: float
    enode_cores: float
    change_ms: float
    """Of the name server for one change."""
    topic_bytes: float
    group_bytes: float
    """In the directory."""
    processes: int
    """Snodes, or their worker processes, of which each uses half a core."""


def need(cluster: Cluster) -> Need:
    """The needs of a cluster."""
    cost = {name: unit.cost for name, unit in UNITS.items()}
    clients = cluster.clients / cluster.snodes
    polls, heartbeats, queries = clients / POLL_S, clients / HEARTBEAT_S, clients / QUERY_S
    call_ms = cost["call over grpc" if cluster.is_grpc else "call"]
    calls_cores = (polls * cluster.enodes_of_a_topic * cost["poll"] + (heartbeats + queries) * call_ms) / 1_000
    # Each client has a group of its own, so a group has members at one snode.
    places = min(cluster.groups, cluster.clients) * TOPICS_OF_GROUP * cluster.enodes_of_a_topic
    waits = places / cluster.snodes / WAIT_S
    wait_cores = waits * cost["wait"] / 1_000
    rows = cluster.topics + cluster.groups
    open_waits = places / cluster.enodes
    return Need(
        polls_per_s=polls,
        heartbeats_per_s=heartbeats,
        queries_per_s=queries,
        client_cores=calls_cores,
        waits_per_s=waits,
        wait_cores=wait_cores,
        client_mib=clients * cost["client"] / 1_024,
        directory_mib=(cluster.topics * cost["topic"] + cluster.groups * cost["group"]) / 1_024,
        snapshot_s=rows * cost["row"] / 1e6,
        enode_waits=open_waits,
        enode_waits_per_s=open_waits / WAIT_S,
        enode_cores=open_waits / WAIT_S * cost["wait"] / 1_000,
        change_ms=(cluster.enodes + cluster.snodes) * cost["change"],
        topic_bytes=cluster.topics * cost["topic on the wire"],
        group_bytes=cluster.groups * cost["group on the wire"],
        processes=math.ceil(round(cluster.snodes * (calls_cores + wait_cores) / USED, 6)),
    )


@dataclass(frozen=True, slots=True)
class Limit:
    """The use of one limit: 1 = all of it."""

    what: str
    used: float
    allows: str
    """The largest number within this limit, if everything else has the size of the cluster."""
    remedy: str


def limits(cluster: Cluster) -> list[Limit]:
    """The limits that a cluster reaches, the most exceeded first."""
    it, watchers_max, waits_max = need(cluster), NamesrvSettings().watchers_max, StoreSettings().waiters_max
    snode_cores = it.client_cores + it.wait_cores
    group_bytes = UNITS["group on the wire"].cost
    directory_bytes = it.topic_bytes + it.group_bytes
    room = max(0.0, DIRECTORY_BYTES_MAX - it.topic_bytes) / group_bytes
    found = [
        Limit("number of groups", cluster.groups / GROUPS_MAX, f"{GROUPS_MAX:,} groups", "let clients share groups"),
        Limit(
            "half a core of each snode",
            snode_cores / USED,
            f"{_round(cluster.clients / cluster.snodes * USED / snode_cores):,} clients a process",
            f"{it.processes:,} processes, as snodes or as their [worker processes](processes.md)",
        ),
        Limit(
            "size of the directory",
            directory_bytes / DIRECTORY_BYTES_MAX,
            f"{_round(room):,} groups beside the topics",
            "let clients share groups",
        ),
        Limit("number of topics", cluster.topics / TOPICS_MAX, f"{TOPICS_MAX:,} topics", "use lite topics"),
        Limit(
            "half a core of each enode",
            it.enode_cores / USED,
            f"{_round(it.enode_waits * USED / it.enode_cores):,} open waits",
            "put topics on fewer enodes, or add enodes",
        ),
        Limit("open waits of each enode", it.enode_waits / waits_max, f"{waits_max:,} open waits", "add enodes"),
        Limit(
            "watchers of a name server",
            (cluster.enodes + cluster.snodes) / watchers_max,
            f"{watchers_max:,} processes",
            "raise `watchers_max`, or add name servers",
        ),
    ]
    return sorted(found, key=lambda one: -one.used)


def _round(number: float) -> int:
    """Two digits, rounded down, because limits are not rounded up."""
    digits = max(0, math.floor(math.log10(number)) - 1) if number >= 1 else 0
    unit = int(math.pow(10, digits))
    return int(number / unit + 1e-9) * unit


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines]) + "\n"


def section(cluster: Cluster) -> str:
    """The unit costs, the needs and the limits as Markdown."""
    it = need(cluster)
    several = need(Cluster(enodes_of_a_topic=4))
    units = _table(
        ("item", "unit cost", "measured by"),
        ((unit.item, f"{unit.cost:g} {unit.unit} {unit.of}".strip(), unit.measured_by) for unit in UNITS.values()),
    )
    needs = _table(
        ("process", "computed need"),
        iter(
            (
                (
                    f"snode, with {cluster.clients / cluster.snodes:,.0f} clients",
                    f"{it.polls_per_s:,.0f} polls, {it.heartbeats_per_s:,.0f} heartbeats and {it.queries_per_s:,.0f} "
                    f"queries a second: {it.client_cores:.1f} cores. {it.client_mib:,.0f} MiB for clients",
                ),
                ("snode, its waits", f"{it.waits_per_s:,.0f} waits a second: {it.wait_cores:.2f} cores"),
                (
                    "snode, its copy of the directory",
                    f"{it.directory_mib:,.0f} MiB. A snapshot takes up to {it.snapshot_s:,.0f} s of processor time",
                ),
                (
                    "enode",
                    f"{it.enode_waits:,.0f} open waits, of which {it.enode_waits_per_s:,.0f} are repeated each second: "
                    f"{it.enode_cores:.2f} cores",
                ),
                (
                    "enode, if each topic is on four enodes",
                    f"{several.enode_waits:,.0f} open waits, of which {several.enode_waits_per_s:,.0f} are repeated "
                    f"each second: {several.enode_cores:.2f} cores",
                ),
                (
                    "name server",
                    f"up to {it.change_ms:,.0f} ms for a change. {1_000 / it.change_ms:,.0f} changes a second fill a "
                    "core",
                ),
                (
                    "directory",
                    f"topics: {it.topic_bytes / 1e6:,.0f} MB. Groups: {it.group_bytes / 1e6:,.0f} MB",
                ),
            )
        ),
    )
    reached = _table(
        ("limit", "used", "largest number", "remedy"),
        ((one.what, f"{one.used:.0%}", one.allows, one.remedy) for one in limits(cluster)),
    )
    return (
        f"{units}\n{needs}\nThe limits of this cluster, the most exceeded first. Above 100% the cluster does not work "
        f"without the remedy.\n\n{reached}"
    )


def page(text: str) -> str:
    """The page `text` with the section between its marks."""
    return page_with(text, section(Cluster()), MARKS)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="write the section of the page")
    usual = Cluster()
    for name in ("enodes", "snodes", "topics", "groups", "clients", "enodes_of_a_topic"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(usual, name))
    parser.add_argument("--grpc", dest="is_grpc", action="store_true", help='with transport = "grpc"')
    chosen = vars(parser.parse_args())
    if chosen.pop("page"):
        PAGE.write_text(page(PAGE.read_text()))
        return
    print(section(Cluster(**chosen)))


if __name__ == "__main__":
    main()
