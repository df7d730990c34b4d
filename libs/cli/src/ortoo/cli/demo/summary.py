"""The demo's one table."""

from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ortoo.cli.demo.tally import Verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the journey measured."""

    sent: int
    stored: int
    body_bytes: int
    seconds: float
    kills: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    flights_expected: int

    @property
    def right(self) -> bool:
        """Whether everything that was sent is stored once and reached every group that wanted it."""
        return self.sent == self.stored == self.flights_expected and all(verdict.right for verdict in self.verdicts)


def print_summary(outcome: Outcome) -> None:
    """Print the table, and one line that says what it means."""
    console = Console()
    table = Table(title="Every departure from New York in 2013", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "messages", "expected", "duplicates", "lost", "MB/s", "seconds"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    speed = f"{outcome.body_bytes / 1e6 / outcome.seconds:.1f}"
    table.add_row("sent", f"{outcome.sent:,}", f"{outcome.flights_expected:,}", "", "", speed, f"{outcome.seconds:.1f}")
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
    if outcome.right:
        console.print(f"Killed on the way: {killed or 'nobody'}.")
        console.print("Every acknowledged flight arrived, with its content unchanged.")
        return
    console.print("[red]Something is wrong: the counts or contents above are not those that were sent.[/red]")
    for verdict in outcome.verdicts:
        if verdict.foreign:
            console.print(f"  {verdict.group} received {verdict.foreign:,} messages that nobody sent")
