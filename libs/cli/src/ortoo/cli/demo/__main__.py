"""`make demo`: every flight of 2013 through three real processes, two of which are killed during the run."""

import argparse
import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ortoo.cli.demo.flights import FLIGHTS, data_file, messages
from ortoo.cli.demo.flow import CHUNK_MESSAGES, QUEUES, TOPIC, FlightFlow, FlightProgress
from ortoo.cli.demo.role_subprocess import RoleSubprocess, free_addresses
from ortoo.cli.demo.tally import GroupResult
from ortoo.cli.terminal.printing import print_note
from ortoo.client import connect
from ortoo.common.errors import OrtooError
from ortoo.common.logs.logger import configure
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """The result of one run of the demo."""

    sent: int
    stored: int
    body_bytes: int
    seconds: float
    kills: tuple[str, ...]
    verdicts: tuple[GroupResult, ...]

    @property
    def is_right(self) -> bool:
        """Whether every sent message is stored once and reached every group that subscribed to it."""
        return self.sent == self.stored == FLIGHTS and all(verdict.is_right for verdict in self.verdicts)


class DemoRun:
    """One run of the demo, with its stores and logs in one folder."""

    def __init__(self, folder: Path, *, kill: bool) -> None:
        """Keep stores and logs in `folder`; with `kill`, end the snode and the enode by SIGKILL during the run."""
        self._folder = folder
        self._kill = kill
        self._clock = SystemClock()
        self._flow = FlightFlow()
        self._kills: list[str] = []
        self._namesrv_address = ""
        self._tls_address = ""

    async def run(self) -> DemoOutcome:
        """Run the demo. Errors: NotFound if the data is not installed, Unavailable if a process does not start."""
        flights, flow = data_file(), self._flow
        async with AsyncExitStack() as stack:
            namesrv, enode, snode = [await self._start(stack, role) for role in ("namesrv", "enode", "snode")]
            mq = await stack.enter_async_context(connect(snode.address))
            await mq.admin.create_topic(TOPIC, queue_count=QUEUES)
            background = await stack.enter_async_context(Background("demo"))
            progress = stack.enter_context(FlightProgress(FLIGHTS))
            progress.print_line(f"clients reach the snode at {snode.address}, by TLS at {self._tls_address}")
            flow.consume(background, snode.address)
            began_s = self._clock.monotonic_s()
            killing: list[asyncio.Task[None]] = []
            async with mq.producer(TOPIC) as producer:
                source = messages(flights)
                while chunk := list(islice(source, CHUNK_MESSAGES)):
                    flow.record_sent(chunk)
                    await producer.send_many(chunk)
                    progress.sent(flow.sent.total())
                    for share, role in ((1, snode), (2, enode)):
                        if self._kill and len(killing) < share <= 3 * flow.sent.total() // FLIGHTS:
                            killing.append(background.spawn("kill", self._kill_and_restart(role, progress)))
                await producer.flush()
            await asyncio.gather(*killing)
            await flow.wait_all_arrived(progress)
            seconds = self._clock.monotonic_s() - began_s
            description = await mq.admin.describe_topic(TOPIC)
            stored = sum(queue.end_offset - queue.begin_offset for queue in description.queues)
            for process in (snode, enode, namesrv):
                stack.push_async_callback(process.stop)
        sent = flow.sent.total()
        return DemoOutcome(sent, stored, flow.body_bytes, seconds, tuple(self._kills), flow.verdicts())

    async def _start(self, stack: AsyncExitStack, role: str) -> RoleSubprocess:
        environ = {} if role == "snode" else {"DATA_DIR": str(self._folder / role)}
        if role != "namesrv":
            environ["NAMESRV_ADDRESS"] = self._namesrv_address
        if role == "snode":
            [self._tls_address] = free_addresses(1)
            environ["TLS_LISTEN_ADDRESS"] = self._tls_address
        process = RoleSubprocess(role, environ, self._folder / f"{role}.log")
        stack.push_async_callback(process.kill)
        await process.start()
        if role == "namesrv":
            self._namesrv_address = process.address
        return process

    async def _kill_and_restart(self, role: RoleSubprocess, progress: FlightProgress) -> None:
        await role.kill()
        self._kills.append(role.role)
        progress.print_line(f"killed the {role.role} (SIGKILL) after {self._flow.sent.total():,} flights")
        await role.start()
        progress.print_line(f"the {role.role} is running again")


def _print_summary(outcome: DemoOutcome) -> None:
    """Print the table, and one line with the conclusion."""
    console = Console()
    table = Table(title="Every departure from New York in 2013", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "messages", "expected", "duplicates", "lost", "MB/s", "seconds"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    speed = f"{outcome.body_bytes / 1e6 / outcome.seconds:.1f}"
    table.add_row("sent", f"{outcome.sent:,}", f"{FLIGHTS:,}", "", "", speed, f"{outcome.seconds:.1f}")
    stored_twice = max(0, outcome.stored - outcome.sent)
    table.add_row(
        "stored",
        f"{outcome.stored:,}",
        f"{outcome.sent:,}",
        f"{stored_twice:,}",
        f"{max(0, outcome.sent - outcome.stored):,}",
    )
    for verdict in outcome.verdicts:
        counts = (verdict.delivered, verdict.expected, verdict.duplicates, verdict.lost)
        table.add_row(f"received by {verdict.group}", *(f"{count:,}" for count in counts))
    console.print(table)
    killed = ", then ".join(outcome.kills)
    if outcome.is_right:
        console.print(f"Killed during the run: {killed or 'no process'}.")
        console.print("Every acknowledged flight arrived, with its content unchanged.")
        return
    console.print("[red]Something is wrong: the counts or contents above are not those that were sent.[/red]")
    for verdict in outcome.verdicts:
        if verdict.unexpected:
            console.print(f"  {verdict.group} received {verdict.unexpected:,} messages that were not sent")


def main() -> int:
    """Run the demo; the exit code is 0 when every flight arrived and 1 otherwise."""
    parser = argparse.ArgumentParser(prog="ortoo demo", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="keep the stores and logs here (default: a temporary folder)")
    parser.add_argument("--no-kill", action="store_true", help="do not kill processes")
    arguments = parser.parse_args()
    # The demo breaks connections on purpose; the clients' warnings about them would interrupt the progress bars.
    configure(level="error")
    with tempfile.TemporaryDirectory(prefix="ortoo-demo-") as temporary:
        folder: Path = arguments.data_dir or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            outcome = asyncio.run(DemoRun(folder, kill=not arguments.no_kill).run())
        except OrtooError as error:
            print_note(f"error: {error}")
            return 1
        _print_summary(outcome)
        return 0 if outcome.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
