"""The demo's broker: `ortoo dev` as a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ortoo.common.errors import Unavailable


@contextmanager
def broker(data_dir: Path) -> Iterator[str]:
    """Run a cluster on a free port; yields host:port. Errors: Unavailable when it does not start."""
    command = [str(Path(sys.executable).parent / "ortoo"), "dev", "--data-dir", str(data_dir)]
    process = subprocess.Popen([*command, "--listen-address", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready on "):
            raise Unavailable(f"the cluster said {line!r} instead of being ready")
        yield line.removeprefix("ready on ").split(",")[0].split()[0]
    finally:
        process.terminate()
        process.wait(timeout=30)
