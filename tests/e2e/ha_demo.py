"""`make demo-ha`: every flight of 2013 through an enode of three replicas, whose leader is lost three times on the way.

    python -m tests.e2e.ha_demo

Three name servers on PostgreSQL, one enode of three replicas, two snodes that share their groups through Valkey. While
flights are sent the leader is killed, then a leader is frozen, then a leader's disk is emptied. The table shows the
flights sent, acknowledged, delivered, lost and delivered twice, and the time of each failover. That is the time until a
send that a client began after the fault was acknowledged. The exit code is 1 when anything is missing.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ortoo.cli.demo.flights import FLIGHTS, data_file, messages
from ortoo.cli.demo.flow import CHUNK_MESSAGES, QUEUES, TOPIC, FlightFlow, FlightProgress
from ortoo.client import Message as Flight
from ortoo.client import OrtooError, ProducerSettings, connect
from ortoo.common.logs import logger as logs
from ortoo.common.process.background import Background
from ortoo.verification.servers.postgres import postgres
from ortoo.verification.servers.processes import RoleProcess
from ortoo.verification.servers.valkey import valkey
from tests.e2e.drill import run_drill
from tests.e2e.failovers import Round, TakeOvers, under_load
from tests.e2e.replica_cluster import replica_cluster

HARMS = ("kill", "freeze", "empty")
TOLD = {"kill": "killed (SIGKILL)", "freeze": "frozen (SIGSTOP)", "empty": "killed, and its disk emptied"}
NAME_SERVERS, SNODES = 3, 2
WAITING_BYTES_MAX = 8 << 20
"""The bytes that wait while there is no leader: more would delay the small messages that measure a failover."""
PULSE_PER_S = 20
"""Rate of the small messages beside the flights, sent one at a time, that measure failovers and provide a history."""


@dataclass(slots=True)
class HaOutcome:
    """The results."""

    flow: FlightFlow = field(default_factory=FlightFlow)
    acknowledged: int = 0
    stored: int = 0
    rounds: list[Round] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Contradictions in the history of the small messages: answers that no single log could have given."""

    def right(self, flights: int) -> bool:
        """Whether every flight was acknowledged, is stored once, and reached every group that subscribes to it."""
        counts = {self.flow.sent.total(), self.acknowledged, self.stored, flights}
        return len(counts) == 1 and not self.broken and all(one.is_right for one in self.flow.verdicts())


@contextlib.asynccontextmanager
async def database() -> AsyncIterator[str]:
    """The database of the name servers: PostgreSQL, or a SQLite file if its wheel does not support this machine."""
    if importlib.util.find_spec("pgserver") is None:
        sys.stdout.write("PostgreSQL is not installed here: the name servers share a SQLite file instead\n")
        yield ""
        return
    async with postgres() as server:
        yield server.url


async def ha_demo(folder: Path, flights: int = FLIGHTS) -> HaOutcome:
    """Run it in `folder`, with `flights` flights."""
    outcome = HaOutcome()
    async with (
        database() as url,
        valkey(folder / "valkey") as redis,
        replica_cluster(
            folder, name_servers=NAME_SERVERS, database_url=url, snodes=SNODES, redis_url=redis.url
        ) as cluster,
        under_load(cluster, rate=PULSE_PER_S, say=lambda text: None) as take_overs,
    ):
        addresses = [one.address for one in cluster.snodes]
        await take_overs.mq.admin.ensure_topic(TOPIC, queue_count=QUEUES)
        with FlightProgress(flights) as progress:
            async with Background("demo") as background:
                outcome.flow.consume(background, addresses)
                outcome.acknowledged = await _sent(outcome, take_overs, addresses, flights, progress)
                await outcome.flow.wait_all_arrived(progress)
            described = await take_overs.mq.admin.describe_topic(TOPIC)
            outcome.stored = sum(queue.end_offset - queue.begin_offset for queue in described.queues)
    outcome.broken = take_overs.load.history.problems()
    return outcome


async def _sent(
    outcome: HaOutcome, take_overs: TakeOvers, addresses: list[str], flights: int, progress: FlightProgress
) -> int:
    """Send all flights, and harm the leader after a quarter, a half and three quarters; return the number accepted."""
    flow, source = outcome.flow, islice(messages(data_file()), flights)
    taken, harmed = [], list[asyncio.Task[None]]()
    settings = ProducerSettings(memory_bytes_max=WAITING_BYTES_MAX)
    async with connect(addresses) as mq, mq.producer(TOPIC, settings) as producer, Background("harm") as background:
        while chunk := list[Flight](islice(source, CHUNK_MESSAGES)):
            if len(harmed) < len(HARMS) and flow.sent.total() * (len(HARMS) + 1) >= flights * (len(harmed) + 1):
                await asyncio.gather(*harmed)  # one after another, each of them while flights are sent
                leader, harm = await take_overs.ready(), HARMS[len(harmed)]
                harmed.append(background.spawn(harm, _harm(outcome, take_overs, leader, harm, progress)))
            flow.record_sent(chunk)
            taken.append(await producer.send_many(chunk))
            progress.sent(flow.sent.total())
        await producer.flush()
        await asyncio.gather(*harmed)
    acknowledged = 0
    for sending in (one for some in taken for one in some):
        with contextlib.suppress(OrtooError):
            await sending
            acknowledged += 1
    return acknowledged


async def _harm(
    outcome: HaOutcome, take_overs: TakeOvers, leader: RoleProcess, harm: str, progress: FlightProgress
) -> None:
    progress.print_line(
        f"{leader.folder.name}, which leads, is {TOLD[harm]} after {outcome.flow.sent.total():,} flights"
    )
    done = await take_overs.round(harm, leader)
    outcome.rounds.append(done)
    progress.print_line(f"another one acknowledged after {done.took_s:.2f} s; {leader.folder.name} is back")


def print_outcome(outcome: HaOutcome, flights: int) -> None:
    """Print two tables, and one line with the conclusion."""
    console, flow = Console(), outcome.flow
    counts = Table(title="Flights of 2013, and three lost leaders", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "messages", "lost", "twice"):
        counts.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    sent = flow.sent.total()
    counts.add_row("sent", f"{sent:,}")
    counts.add_row("acknowledged", f"{outcome.acknowledged:,}")
    lost, twice = max(0, outcome.acknowledged - outcome.stored), max(0, outcome.stored - sent)
    counts.add_row("stored", f"{outcome.stored:,}", f"{lost:,}", f"{twice:,}")
    for one in flow.verdicts():
        counts.add_row(f"delivered to {one.group}", f"{one.delivered:,}", f"{one.lost:,}", f"{one.duplicates:,}")
    console.print(counts)
    took = Table(title="Take-overs", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("the leader was", "took over in", "this machine stood still"):
        took.add_column(heading, justify="left" if heading == "the leader was" else "right", no_wrap=True)
    for round_ in outcome.rounds:
        took.add_row(TOLD[round_.harm], f"{round_.took_s:.2f} s", f"{round_.stalled_s * 1000:.0f} ms")
    console.print(took)
    for line in outcome.broken:
        console.print(f"[red]broken: {line}[/red]")
    if outcome.right(flights):
        console.print("Every acknowledged flight is stored once, and arrived with its content unchanged.")
    else:
        console.print("[red]Something is wrong: the counts above are not those that were sent.[/red]")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flights", type=int, default=FLIGHTS, help="number of flights to send")
    given = parser.parse_args()
    logs.configure(level="error")
    with tempfile.TemporaryDirectory(prefix="ortoo-demo-") as folder:
        try:
            outcome = run_drill(ha_demo(Path(folder), given.flights))
        except OrtooError as error:
            sys.stderr.write(f"error: {error}\n")
            return 1
    print_outcome(outcome, given.flights)
    return 0 if outcome.right(given.flights) else 1


if __name__ == "__main__":
    sys.exit(main())
