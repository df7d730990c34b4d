"""The division of the descriptors of a process."""

import os
import resource
import subprocess
import sys
from itertools import pairwise

import pytest

from ortoo.common.machine.descriptors import Descriptors, open_descriptors

LIMITS = (256, 512, 1024, 4096, 20_000, 65_536, 1 << 20)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("roles", [1, 2, 3])
def test_all_uses_together_fit_the_limit(limit: int, roles: int) -> None:
    """Connections and segment files of all roles in a process leave the reserve untouched."""
    own = Descriptors(limit, roles)
    assert roles * (own.connections + own.files) + own.reserve <= limit
    assert own.reserve >= 64
    assert own.files >= 8
    assert own.connections >= limit // (4 * roles)


def test_a_larger_limit_takes_nothing_from_any_use() -> None:
    """Each share grows with the limit, or stays."""
    shares = [(own.reserve, own.files, own.connections) for own in map(Descriptors, range(16, 70_000, 13))]
    for smaller, larger in pairwise(shares):
        assert all(before <= after for before, after in zip(smaller, larger, strict=True))


def test_a_limit_that_is_far_too_low_still_gives_every_use_something() -> None:
    """The process starts, and reports a low limit."""
    own = Descriptors(32)
    assert own.are_few
    assert min(own.reserve, own.files, own.connections) > 0


def test_open_descriptors_are_counted() -> None:
    """One more open file is counted."""
    before = open_descriptors()
    read, write = os.pipe()
    assert open_descriptors() == before + 2
    os.close(read)
    os.close(write)
    assert open_descriptors() == before


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    """In a separate process; the hard limit does not change."""
    program = (
        "import resource; from ortoo.common.machine.descriptors import raise_limit;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 512));"
        "print(raise_limit().limit, resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "512 (512, 512)"
    assert Descriptors.of_process().limit == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
