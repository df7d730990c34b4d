"""The members of one enode as processes of their own beside `ortoo dev`: one can be killed to see what happens."""

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from ortoo.cli.demo.role_process import RoleProcess, free_addresses
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock

RESTART_AFTER_S = 5.0
"""Long enough to see another member lead."""


@contextlib.asynccontextmanager
async def open_members(count: int, data_dir: Path, name_server: str, segment_bytes: int) -> AsyncIterator[None]:
    """Run the members of `enode-0`; one that ends is started again. Leaving the block stops them.

    Errors: Unavailable when one does not start, with the end of its log.
    """
    addresses = free_addresses(count)
    members = []
    for number in range(1, count + 1):
        folder = data_dir / f"enode-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "MEMBER": str(number),
            "MEMBERS": str(count),
            "MEMBER_LISTEN_ADDRESS": addresses[number - 1],
            "MEMBER_ADDRESSES": ";".join(addresses),
            "NAMESRV_ADDRESS": name_server,
            "DATA_DIR": str(folder / "data"),
            "STORE_SEGMENT_BYTES": str(segment_bytes),
        }
        members.append(RoleProcess("enode", settings, folder / "log"))
    try:
        for number, member in enumerate(members, 1):
            await member.start()
            print(f"member {number}: process {member.process_id}, data in {data_dir}/enode-{number}", flush=True)
        async with Background("members") as background:
            for number, member in enumerate(members, 1):
                background.spawn(f"member {number}", _kept(number, member))
            yield
    finally:
        for member in members:
            await member.stop()


async def _kept(number: int, member: RoleProcess) -> None:
    """Start a member again whenever it has ended."""
    while True:
        code = await member.ended()
        print(f"member {number} has ended ({code}); it starts again in {RESTART_AFTER_S:.0f} s", file=sys.stderr)
        await SystemClock().sleep(RESTART_AFTER_S)
        await member.start()
        print(f"member {number}: process {member.process_id}", flush=True)
