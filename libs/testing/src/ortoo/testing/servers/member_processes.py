"""An enode of several members as real processes, with a name server and a snode."""

import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ortoo.client import Client, OrtooError
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.testing.servers.processes import SMALL_STORE, RoleProcess

ENODE = "enode-0"
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class MemberCluster:
    """The processes."""

    namesrv: RoleProcess
    members: Sequence[RoleProcess]
    snode: RoleProcess

    @property
    def address(self) -> str:
        """Where clients connect."""
        return self.snode.address

    async def leader(self, client: Client, *, but: RoleProcess | None = None) -> RoleProcess:
        """The member that leads, as soon as one does; `but` = another one than this."""
        clock = SystemClock()
        while True:
            with contextlib.suppress(OrtooError):
                for enode in await client.admin.members.list(ENODE):
                    if enode.leader and self.members[enode.leader - 1] is not but:
                        return self.members[enode.leader - 1]
            await clock.sleep(LOOK_S)

    def logs(self) -> str:
        """The end of what each process said."""
        roles = (self.namesrv, *self.members, self.snode)
        return "\n".join(f"--- {role.folder.name}\n{role.log_text()[-4000:]}" for role in roles)


@contextlib.asynccontextmanager
async def member_cluster(folder: Path, members: int = 3) -> AsyncIterator[MemberCluster]:
    """Start everything; leave nothing running. The set has begun when the first topic can be made."""
    ports = [f"127.0.0.1:{port}" for port in free_ports(members)]
    namesrv = RoleProcess("namesrv", folder / "namesrv")
    cluster = MemberCluster(
        namesrv,
        [
            RoleProcess(
                "enode",
                folder / f"member-{number}",
                {
                    **SMALL_STORE,
                    "NAME": ENODE,
                    "MEMBER": number,
                    "MEMBERS": members,
                    "MEMBER_LISTEN_ADDRESS": ports[number - 1],
                    "MEMBER_ADDRESSES": ";".join(ports),
                },
            )
            for number in range(1, members + 1)
        ],
        RoleProcess("snode", folder / "snode-0", {"NAME": "snode-0"}),
    )
    try:
        await namesrv.start()
        async with Background("starting") as background:
            starts = []
            for role in (*cluster.members, cluster.snode):
                role.environ["NAMESRV_ADDRESS"] = namesrv.address
                starts.append(background.spawn(role.folder.name, role.start()))
            for start in starts:
                await start
        yield cluster
    finally:
        for role in (cluster.snode, *cluster.members, namesrv):
            await role.kill()


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now: members have to be told of each other before they are started."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
