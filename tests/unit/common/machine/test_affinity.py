"""The masks of real threads and processes, and the claim to a core."""

import asyncio
import contextlib
import os
import resource
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ortoo.common.machine import affinity
from ortoo.common.machine.affinity import PARENT_CORES, LinuxCores, system_cores
from ortoo.enode.index.key_index import KIND_KEY
from ortoo.enode.index.key_process import KeyIndexProcess
from ortoo.enode.index.key_search import KeyQuery

CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="ONE CORE, or none to choose; run it on Linux with two")


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> int:
    """A core that this process may use; the claim has a name of this test, because others may have claimed the core."""
    monkeypatch.setattr(affinity, "CLAIM_SOCKET_NAME", f"\0ortoo test {os.getpid()} {{}}")
    return min(CORES)


@pytest.fixture
def cores(core: int) -> Iterator[LinuxCores]:
    """The cores of this process, restored at the end."""
    assert core in CORES
    found = LinuxCores()
    yield found
    found.unpin()
    os.sched_setaffinity(0, CORES)


class Sleeper:
    """A thread with an affinity mask."""

    def __init__(self) -> None:
        self._end, self._begun = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._begun.wait()

    def _run(self) -> None:
        self._begun.set()
        self._end.wait()

    def cores(self) -> set[int]:
        assert self._thread.native_id is not None
        return os.sched_getaffinity(self._thread.native_id)

    def end(self) -> None:
        self._end.set()
        self._thread.join()


@contextlib.contextmanager
def sleeping() -> Iterator[Sleeper]:
    """A thread within the block."""
    thread = Sleeper()
    try:
        yield thread
    finally:
        thread.end()


def test_threads_that_are_there_and_those_begun_later_keep_to_the_core_and_get_all_back(
    cores: LinuxCores, core: int
) -> None:
    """Every thread has the one core, also new ones; then each has the original cores."""
    with sleeping() as old:
        assert cores.pin(core)
        with sleeping() as new:
            assert (old.cores(), new.cores(), os.sched_getaffinity(0)) == ({core}, {core}, {core})
            cores.unpin()
            assert (old.cores(), new.cores(), os.sched_getaffinity(0)) == (CORES, CORES, CORES)


def test_threads_begun_by_others_at_that_moment_are_told_as_well(cores: LinuxCores, core: int) -> None:
    """While another thread starts threads continuously, no live one has another mask after `settle`."""
    stop, held = threading.Event(), list[Sleeper]()

    def begin() -> None:
        while not stop.is_set() and len(held) < 200:
            held.append(Sleeper())

    beginning = threading.Thread(target=begin)
    beginning.start()
    try:
        assert cores.pin(core)
        stop.set()
        beginning.join()
        cores.apply_to_threads()
        assert {frozenset(one.cores()) for one in held} <= {frozenset({core})}
    finally:
        stop.set()
        beginning.join()
        for one in held:
            one.end()


def test_a_core_is_kept_by_one_process_until_it_gives_it_back(cores: LinuxCores, core: int) -> None:
    """A second claim is refused and changes nothing; a core that is left for another one is free at once."""
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(affinity.CLAIM_SOCKET_NAME.format(core))
        assert not cores.pin(core)
        assert cores.allowed() == CORES
        assert cores.pin(max(CORES))
    assert cores.pin(core)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(affinity.CLAIM_SOCKET_NAME.format(max(CORES)))
    with socket.socket(socket.AF_UNIX) as other, pytest.raises(OSError, match="in use"):
        other.bind(affinity.CLAIM_SOCKET_NAME.format(core))


def test_what_an_operator_gave_is_given_back_and_no_more(cores: LinuxCores, core: int) -> None:
    """A mask smaller than the system allows was chosen by an operator, and is restored unchanged."""
    os.sched_setaffinity(0, {core})
    assert cores.pin(core)
    cores.unpin()
    assert cores.allowed() == {core}


def test_a_core_that_is_not_there_is_an_error_that_leaves_everything_as_it_was(cores: LinuxCores, core: int) -> None:
    """As when the control group has lost it."""
    missing = os.sysconf("SC_NPROCESSORS_CONF")
    with pytest.raises(OSError, match="Invalid argument"):
        cores.pin(missing)
    assert cores.allowed() == CORES
    assert PARENT_CORES not in os.environ
    assert cores.pin(core)


def test_a_mask_that_was_changed_meanwhile_stays(cores: LinuxCores, core: int) -> None:
    """If an operator changes the cores of a pinned process, that mask stays."""
    assert cores.pin(core)
    os.sched_setaffinity(0, {max(CORES)})
    cores.unpin()
    assert cores.allowed() == {max(CORES)}


def test_a_mask_that_was_changed_stays_when_no_core_could_be_had(cores: LinuxCores, core: int) -> None:
    """Neither the cores of the start are restored then, nor the previous ones."""
    for _ in range(2):
        os.sched_setaffinity(0, {max(CORES)})
        cores.apply_to_threads()
        assert cores.allowed() == {max(CORES)}
        os.sched_setaffinity(0, CORES)
        assert cores.pin(core)
        cores.unpin()
        cores.apply_to_threads()


def test_cores_come_back_to_a_process_that_had_no_file_descriptor_when_it_wanted_them(
    cores: LinuxCores, core: int
) -> None:
    """Its threads cannot be listed then; they are changed later, and the claim ends at once."""
    assert cores.pin(core)
    with sleeping() as thread:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                cores.unpin()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        cores.apply_to_threads()
        assert thread.cores() == os.sched_getaffinity(0) == CORES
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(affinity.CLAIM_SOCKET_NAME.format(core))


async def test_the_key_process_has_all_cores_of_an_enode_that_keeps_to_one(
    cores: LinuxCores, core: int, tmp_path: Path
) -> None:
    """A real process, started while its parent is pinned to a core."""
    assert cores.pin(core)
    keys = KeyIndexProcess(tmp_path)
    try:
        await keys.find(KeyQuery(1, KIND_KEY, "k", 0, 1 << 62, 1), [])
        assert os.sched_getaffinity(keys.process_id) == CORES
    finally:
        await keys.close()


async def test_a_process_of_a_role_begins_with_what_its_parent_was_given(cores: LinuxCores, core: int) -> None:
    """A worker of a snode does so; it does not pass the variable on."""
    assert cores.pin(core)
    text = (
        "import os\nfrom ortoo.common.machine.affinity import *\nrestore_parent_cores()\n"
        "print(*sorted(os.sched_getaffinity(0)), PARENT_CORES in os.environ)"
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", text, stdout=asyncio.subprocess.PIPE)
    said, _ = await child.communicate()
    assert said.split() == [*(str(one).encode() for one in sorted(CORES)), b"False"]


def test_every_core_of_ours_is_counted_with_what_the_host_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """User, nice, system, interrupts and steal count; idle and waiting for the disk do not."""
    assert set(LinuxCores().busy_s()) >= CORES
    stat = tmp_path / "stat"
    stat.write_text("cpu  9 9 9 9 9 9 9 9 9 9\ncpu3 100 20 30 4000 5000 6 7 37 8 9\nintr 1 2\n")
    monkeypatch.setattr(affinity, "STAT", stat)
    assert LinuxCores().busy_s() == {3: pytest.approx(200 / os.sysconf("SC_CLK_TCK"))}


def test_a_system_that_tells_nothing_offers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc, or without the system call, there are no cores."""
    assert system_cores() is not None
    monkeypatch.setattr(affinity, "STAT", tmp_path / "none")
    assert system_cores() is None
    monkeypatch.undo()
    monkeypatch.delattr(os, "sched_setaffinity")
    assert system_cores() is None
