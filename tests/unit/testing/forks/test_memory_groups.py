"""A group of the kernel is removed when its last process has ended."""

import asyncio

import pytest

from ortoo.verification.forks.memory_groups import memory_group, within

LIMIT_BYTES = 256 << 20
ENDING = ("/bin/sh", "-c", "echo in && exec sleep 0.3")
"""A process that is still ending when the block ends, as the child of a killed role is."""


async def test_a_group_is_removed_after_its_last_process_has_ended() -> None:
    """The end of the block waits for a process that is still ending."""
    async with memory_group("ending", LIMIT_BYTES) as group:
        if group is None:
            pytest.skip("NO CONTROL GROUPS, their removal was NOT tested; run the test as root")
        command = within(group, ENDING)
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        assert await process.stdout.read(1) == b"i"
    assert not group.exists()
    await process.communicate()
