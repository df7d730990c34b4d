"""How a folder becomes that of a member."""

from pathlib import Path

import pytest

from ortoo.common.errors import Conflict
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.enode.consensus.joining import Founding, Joining
from ortoo.enode.disk.identity import Identity, claim
from ortoo.testing.disks.memory_disk import MemoryDisk

FOLDER = Path("/store")


def test_a_copied_log_is_not_the_begin_of_a_second_set() -> None:
    """B-042: the enode's own folder goes on as member 1; the same log as another member would lead beside it."""
    disk = MemoryDisk()
    disk.make_folder(FOLDER)
    claim(disk, FOLDER, Identity("default", "enode-0", "the-store", 1), [])
    with pytest.raises(Conflict, match="start it as member 1, or empty it") as refused:
        Joining(disk, FOLDER, Founding(2, 1, ()), SystemClock(), Randomness(1))
    assert refused.value.field == "member"
    kept = Joining(disk, FOLDER, Founding(1, 1, ()), SystemClock(), Randomness(1)).kept
    assert (kept.set_id, kept.member.number) == ("the-store", 1)
