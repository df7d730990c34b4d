"""An enode whose wall clock tests set: `python -m ortoo.verification.servers.stepped_enode CLOCKFILE [options]`."""

import dataclasses
import sys
from pathlib import Path

from ortoo.common.process import entry_point
from ortoo.enode.__main__ import ROLE
from ortoo.enode.app import open_enode
from ortoo.verification.time.stepped_clock import SharedClock

if __name__ == "__main__":
    clock = SharedClock(Path(sys.argv[1]))
    role = dataclasses.replace(ROLE, open=lambda loaded, load_again: open_enode(loaded.settings, clock=clock))
    sys.exit(entry_point.main(role, sys.argv[2:]))
