"""The findings of a disk that is nearly full."""

from types import SimpleNamespace
from typing import cast

import pytest

from ortoo.enode.disk.disk import DiskSpace
from ortoo.enode.observe import disk_space
from ortoo.enode.store.housekeeping import Housekeeping

GIB = 1 << 30


def test_the_free_space_and_the_estimate_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are in the text of the finding; a disk without a trend has only its free space."""
    keeping = SimpleNamespace(
        space=SimpleNamespace(space=DiskSpace(5 * GIB, 100 * GIB)), appender=SimpleNamespace(full="")
    )

    def told(left_s: float | None) -> list[str]:
        monkeypatch.setattr(disk_space, "full_in_s", lambda _: left_s)
        return [one.observed for one in disk_space.disk_space_findings(cast(Housekeeping, keeping))]

    free = "5.0 of 100.0 GiB of the disk are free (5 %)"
    assert told(2 * 86_400) == [f"{free}, and it is full in 2.0 days at the rate of the last hours"]
    assert told(None) == [free]
