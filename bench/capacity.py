"""Estimate the processes, cores, memory and disk that a load needs, from the committed results.

    python -m bench.capacity --rate 20000 --body 1000 --groups 2 --days 3 --replicas 3

Every figure comes from `bench/results` or from the code:

* processor time of a message sent in batches and read by one group: `produce`, `end_to_end`
* processor time of a message sent by a call of its own: one send in flight of `make bench-peers`
* memory of processes with a backlog and consumers: `memory`
* bytes of the log for a message: `store/store_start`

A machine twice as fast needs half. `python -m bench.capacity --page` writes the examples of
docs/operations/capacity.md.
"""

import argparse
import math
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.report import Figures
from bench.table import RESULTS, ROOT, load, page_with
from ortoo.enode.index.catalog import RUN_BYTES
from ortoo.enode.log.settings import StoreSettings

PAGE = ROOT / "docs/operations/capacity.md"
USED = 0.5
"""The share of a core to plan for; the rest carries peaks, restarts and readers that catch up."""
SPARE = 1.2
"""Disk size divided by the size of its content."""
DAY_S = 86_400
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Load:
    """The load to carry."""

    rate: float
    """Messages sent a second."""
    body: int
    """Bytes of a message body."""
    groups: int = 1
    """The number of groups that read each message."""
    days: float = 1.0
    """The retention time of messages."""
    replicas: int = 1
    """Replicas of each enode."""
    single: float = 0.0
    """The share of messages sent by a call of their own, as by RocketMQ's clients; 0 to 1."""
    queues: int = 100
    consumers: int = 20
    disk_gb_max: float = 2_000.0
    """The largest disk; more data needs more enodes."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The resources that a load needs."""

    snodes: int
    enodes: int
    snode_cores: float
    """All snodes together, at the measured speed, without reserve."""
    enode_cores: float
    """All leaders together, without reserve."""
    disk_gb: float
    """Of each replica of each enode, with a fifth to spare."""
    snode_memory_mib: int
    """The memory limit of each process."""
    enode_memory_mib: int
    network_mb_per_s: float
    """Into and out of all snodes."""


def committed() -> dict[str, Figures]:
    """The committed results of `make bench` and `make bench-peers`."""
    return load() | load(RESULTS / "peers")


def capacity(load: Load, results: dict[str, Figures], start: Figures) -> Capacity:
    """The resources that `load` needs, by the results; `start` is the result of `store_start`."""
    sent, both = results["produce"], results["end_to_end"]
    bodies = max(load.body, sent["body_bytes"]) / sent["body_bytes"]

    def cores(role: str) -> float:
        """Cores of all processes of a role: batches cost by their bytes, single calls by their number."""
        sending: float = sent["cpu_us_per_message"][role]
        reading: float = both["cpu_us_per_message"][role] - sending
        batched: float = load.rate * bodies * ((1 - load.single) * sending + load.groups * reading) / 1e6
        rounds = results["peers"]["systems"]["ortoo"]["rounds"]
        alone_us: float = median(one["send 1"]["cpu_us"][role] for one in rounds)
        return batched + load.rate * load.single * alone_us / 1e6

    snode_cores, enode_cores = cores("snode"), cores("enode")
    snodes = max(2, math.ceil(snode_cores / USED))
    largest: dict[str, Any] = max(start["starts"], key=lambda one: one["messages"])
    overhead = largest["log_gb"] * 1e9 / largest["messages"] - start["body_bytes"]
    segment = StoreSettings().segment_bytes
    total = load.rate * DAY_S * load.days * (load.body + overhead)
    enodes = max(1, math.ceil(enode_cores / USED), math.ceil(total / (load.disk_gb_max * 1e9 / SPARE - 2 * segment)))
    kept = total / enodes
    index = RUN_BYTES * math.ceil(load.queues / enodes) * math.ceil(kept / segment)
    memory = results["memory"]["peak_mib"]
    before, after = memory["after the backlog"], memory["after the consumers"]
    each = (after["snode"] - before["snode"]) / results["memory"]["consumers"]
    return Capacity(
        snodes,
        enodes,
        snode_cores,
        enode_cores,
        (kept + 2 * segment) * SPARE / 1e9,
        _limit(before["snode"] + each * load.consumers / snodes),
        _limit(after["enode"] + index / MIB),
        load.rate * (load.body + overhead) * (1 + load.groups) / 1e6,
    )


def _limit(mib: float) -> int:
    """Twice the measured memory, in steps of 128 MiB."""
    return math.ceil(2 * mib / 128) * 128


EXAMPLES = {
    "a few services": Load(200, 1_000, groups=2, days=7, single=1.0),
    "orders of a shop": Load(2_000, 2_000, groups=3, days=3, replicas=3, single=0.25),
    "events of a site": Load(50_000, 500, groups=2, days=2, replicas=3, queues=400, consumers=60),
    "logs": Load(200_000, 300, groups=1, days=1, queues=800, consumers=40),
}


def table(results: dict[str, Figures], start: Figures) -> str:
    """The examples, a row each."""
    head = (
        *("load", "snodes", "enodes × replicas", "cores in use: all snodes, all leaders", "disk of each replica"),
        *("memory limit: each snode, each enode", "network of all snodes"),
    )
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name, load_ in EXAMPLES.items():
        it = capacity(load_, results, start)
        about = f"{load_.rate:,.0f} messages/s of {load_.body:,} bytes, {load_.single:.0%} by single calls, "
        about += f"{load_.groups} groups, kept {load_.days:g} days"
        cells = (
            f"{name}: {about}",
            str(it.snodes),
            f"{it.enodes} × {load_.replicas}",
            f"{it.snode_cores:.2f}, {it.enode_cores:.2f}",
            f"{it.disk_gb:,.0f} GB",
            f"{it.snode_memory_mib}, {it.enode_memory_mib} MiB",
            f"{it.network_mb_per_s:,.1f} MB/s",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page `text` with the examples between its marks."""
    return page_with(text, table(committed(), load(RESULTS / "store")["store_start"]))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="write the examples of the page")
    parser.add_argument("--rate", type=float, default=1_000, help="messages a second")
    parser.add_argument("--body", type=int, default=1_000, help="bytes of each")
    parser.add_argument("--groups", type=int, default=1, help="groups that read each")
    parser.add_argument("--days", type=float, default=1.0, help="retention time")
    parser.add_argument("--replicas", type=int, default=1, help="replicas of each enode")
    parser.add_argument("--single", type=float, default=0.0, help="share of messages sent by single calls, 0 to 1")
    parser.add_argument("--queues", type=int, default=100, help="queues of all topics")
    parser.add_argument("--consumers", type=int, default=20, help="consumers that are connected")
    parser.add_argument("--disk-gb-max", type=float, default=2_000.0, help="largest disk")
    chosen = vars(parser.parse_args())
    if chosen.pop("page"):
        PAGE.write_text(page(PAGE.read_text()))
        return
    wanted = Load(**chosen)
    it = capacity(wanted, committed(), load(RESULTS / "store")["store_start"])
    print(
        f"{it.snodes} snodes ({it.snode_cores:.2f} cores in use, limit {it.snode_memory_mib} MiB each)\n"
        f"{it.enodes} enodes of {wanted.replicas} replicas ({it.enode_cores:.2f} cores in use by leaders, limit "
        f"{it.enode_memory_mib} MiB each, disk {it.disk_gb:,.0f} GB each)\n"
        f"{it.network_mb_per_s:,.1f} MB/s through the snodes; give each process a core, of which half is planned for"
    )


if __name__ == "__main__":
    main()
