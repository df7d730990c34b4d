"""The memory limit of a process, by control groups."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ortoo.common.process.memory_budget import memory_bytes

MIB = 1 << 20
MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
UNLIMITED = "9223372036854771712"


def group(root: Path, path: str, said: str) -> None:
    """A file of a control group."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(said + "\n")


@pytest.mark.parametrize(
    ("files", "of_process", "expected"),
    [
        ({"memory.max": str(64 * MIB)}, "0::/", 64 * MIB),
        ({"memory.max": "max"}, "0::/", MACHINE),
        ({"memory/memory.limit_in_bytes": str(65 * MIB)}, "4:memory:/", 65 * MIB),
        ({"memory/memory.limit_in_bytes": UNLIMITED}, "4:memory:/", MACHINE),
        ({"a.slice/memory.max": str(70 * MIB), "a.slice/b.scope/memory.max": "max"}, "0::/a.slice/b.scope", 70 * MIB),
        ({"memory/docker/x/memory.limit_in_bytes": str(71 * MIB)}, "9:cpu:/\n4:memory:/docker/x", 71 * MIB),
        ({"unified/a/memory.max": str(72 * MIB)}, "4:cpu:/\n0::/a", 72 * MIB),
        ({"memory.max": str(MACHINE * 2)}, "0::/", MACHINE),
        ({}, "nonsense", MACHINE),
    ],
)
def test_the_least_limit_counts(tmp_path: Path, files: dict[str, str], of_process: str, expected: int) -> None:
    """It works for versions 1 and 2, and for all groups above the process; the limit never exceeds the memory."""
    for path, said in files.items():
        group(tmp_path, path, said)
    (tmp_path / "cgroup").write_text(of_process + "\n")
    assert memory_bytes(tmp_path, tmp_path / "cgroup") == expected


@contextlib.contextmanager
def real_group(limit_bytes: int) -> Iterator[Path]:
    """A control group of the kernel with this limit, of the available version."""
    for root, name in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        folder = root / f"ortoo-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / name).write_text(str(limit_bytes))
            yield folder
        except OSError:
            continue
        else:
            return
        finally:
            folder.rmdir()
    pytest.skip("NO CONTROL GROUPS, limits were NOT tested; run as root where the controller of memory may be used")


def test_a_limit_of_the_kernel_is_read() -> None:
    """A process in a real control group reads the kernel's limit, as in a container."""
    with real_group(256 * MIB) as folder:
        code = "from ortoo.common.process.memory_budget import memory_bytes; print(memory_bytes())"
        into = f"echo $$ > {folder}/cgroup.procs && exec {sys.executable} -c '{code}'"
        found = subprocess.run(["/bin/sh", "-c", into], capture_output=True, text=True, check=True)
    assert int(found.stdout) == 256 * MIB
