"""An enode on a machine that appears to have no other processes while a file exists.

    python -m tests.e2e.quiet_machine FILE

The load of other processes beside a test would decide which core is idle; the process's own time and masks are real.
"""

import sys
from pathlib import Path

from ortoo.common.machine.affinity import LinuxCores
from ortoo.enode.__main__ import main

FILE = Path(sys.argv.pop(1))
_real, _hidden_s = LinuxCores.busy_s, dict[int, float]()


def _busy_s(cores: LinuxCores) -> dict[int, float]:
    found = _real(cores)
    if FILE.exists() or not _hidden_s:
        _hidden_s.update(found)
    return {core: busy_s - _hidden_s[core] for core, busy_s in found.items()}


if __name__ == "__main__":
    LinuxCores.busy_s = _busy_s  # type: ignore[method-assign, assignment]
    sys.exit(main())
