"""An enode as a process of its own, on a machine with faults that can be changed while it runs.

    python -m tests.deploy.ailing_enode          # takes the place of python -m ortoo.enode

The enode is real; only its machine has faults. They are read as JSON (`Ailments`) from the file that
ORTOO_TEST_AILMENTS names, and take effect within a tenth of a second.
"""

import contextlib
import dataclasses
import functools
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

from ortoo.common.process import entry_point
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.service import Running
from ortoo.common.telemetry import role as telemetry
from ortoo.common.telemetry.metrics import Metrics
from ortoo.enode.__main__ import ROLE
from ortoo.enode.app import open_enode
from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.settings import EnodeSettings
from ortoo.testing.disks.faulty_disk import FaultyDisk

FILE = "ORTOO_TEST_AILMENTS"
LOOK_INTERVAL_S = 0.1
SERIES_MAX = 60
"""A metrics budget that a few topics use up."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ailments:
    """The faults of the machine; by default there are none."""

    clock_behind_ms: int = 0
    sync_delay_s: float = 0.0
    disk_full: bool = False

    def write(self, file: Path) -> None:
        """Write the faults to the `file` that an enode follows."""
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(dataclasses.asdict(self)))
        fresh.replace(file)


class AilingMachine:
    """Clock and disk of the machine, with the faults of the file."""

    def __init__(self, file: Path) -> None:
        """Read the file for the first time."""
        self._file = file
        self.ailments = Ailments()
        self.disk = AilingDisk(self)
        self.clock = AilingClock(self)
        self._follow()

    async def look(self) -> None:
        """Read the file again and again."""
        self._follow()

    def _follow(self) -> None:
        ailments = Ailments(**json.loads(self._file.read_text()))
        if ailments.disk_full:
            self.disk.full_after(0)
        elif self.ailments.disk_full:
            self.disk.heal()
        self.ailments = ailments


class AilingClock(SystemClock):
    """A clock that can be late; the monotonic clock never is."""

    def __init__(self, machine: AilingMachine) -> None:
        """The clock of this machine."""
        self._machine = machine

    def now_ms(self) -> int:
        """The time of the machine, with the fault applied."""
        return super().now_ms() - self._machine.ailments.clock_behind_ms


class AilingDisk(FaultyDisk):
    """A disk that can be full or slow."""

    def __init__(self, machine: AilingMachine) -> None:
        """The disk of this machine."""
        super().__init__(RealDisk())
        self._machine = machine
        self._never = threading.Event()

    def next_sync_error(self) -> int:
        """Delay a sync by the configured time."""
        self._never.wait(self._machine.ailments.sync_delay_s)  # in the flush thread, as a slow fdatasync is
        return super().next_sync_error()


@contextlib.asynccontextmanager
async def open_ailing(settings: EnodeSettings) -> AsyncIterator[Running]:
    """Start an enode on such a machine."""
    machine = AilingMachine(Path(os.environ[FILE]))
    async with (
        open_enode(settings, clock=machine.clock, disk=machine.disk) as running,
        Background("ills") as background,
    ):
        background.every("look", LOOK_INTERVAL_S, machine.look, clock=machine.clock)
        yield running


def main() -> int:
    """Run the program like `ortoo-enode`."""
    vars(telemetry)["Metrics"] = functools.partial(Metrics, series_max=SERIES_MAX)
    return entry_point.main(
        dataclasses.replace(ROLE, open=lambda loaded, load_again: open_ailing(loaded.settings)), sys.argv[1:]
    )


if __name__ == "__main__":
    sys.exit(main())
