"""`ortoo enode`: the replicas of enodes, and their leaders."""

from typing import TYPE_CHECKING, Annotated

import typer

from ortoo.cli.terminal.command import EnodeName
from ortoo.cli.terminal.completion import offered_enodes
from ortoo.cli.terminal.output import Answer, Columns, Table

if TYPE_CHECKING:
    from ortoo.client import Client, EnodeMembers

Number = Annotated[int, typer.Argument(help="The replica's number, as `enode members` prints it.")]
Disk = Annotated[str, typer.Option(help="The replica's disk, if two disks have the same number.")]


async def show(
    mq: "Client",
    enode: Annotated[
        str, typer.Argument(help="One enode; without it all that have several replicas.", autocompletion=offered_enodes)
    ] = "",
) -> Answer:
    """Show the leader, the state and the lag of each replica."""
    found = await mq.admin.members.list(enode)
    rows = [(one, member) for one in found for member in one.members]
    columns: Columns = {
        "ENODE": lambda it: it[0].enode,
        "MEMBER": lambda it: it[1].number,
        "STATE": lambda it: it[1].state,
        "EPOCH": lambda it: it[1].epoch,
        "END": lambda it: it[1].tail_position,
        "COMMITTED": lambda it: it[1].committed,
        "BEHIND": lambda it: "-" if it[1].lag_bytes is None else it[1].lag_bytes,
        "ADDRESS": lambda it: it[1].address or "-",
        "REPORTED": lambda it: _ago(it[1].reported_ms_ago),
        "DISK": lambda it: it[1].disk,
    }
    if not found:
        return Answer(found, "no enode has more than one replica, or none reports")
    return Answer(found, (Table(columns, rows), *(_leaderless(one) for one in found if one.leader is None)))


def _ago(time_ms: int | None) -> str:
    return "never" if time_ms is None else f"{time_ms / 1000:.1f} s ago"


def _leaderless(found: "EnodeMembers") -> str:
    proposed = f", replica {found.proposed} is proposed in epoch {found.proposed_epoch}" if found.proposed else ""
    return f"{found.enode} has no leader{proposed}; the quorum is {found.majority}"


async def hand_over(
    mq: "Client",
    enode: EnodeName,
    to: Annotated[int | None, typer.Option(help="The new leader; without it the replica with the longest log.")] = None,
) -> Answer:
    """Transfer leadership to another replica. Acknowledged messages are kept, and clients see a short pause."""
    successor = await mq.admin.members.hand_over(enode, to)
    return Answer({"enode": enode, "successor": successor}, f"transferred leadership of {enode} to replica {successor}")


async def elect(mq: "Client", enode: EnodeName, member: Number, disk: Disk = "") -> Answer:
    """Propose a replica as leader if there is none and none is elected automatically, as with two replicas."""
    epoch = await mq.admin.members.elect(enode, member, disk)
    return Answer(
        {"enode": enode, "member": member, "epoch": epoch},
        f"proposed replica {member} of {enode} in epoch {epoch}; `ortoo enode members {enode}` shows if it leads",
    )


async def add(mq: "Client", enode: EnodeName, member: Number, disk: Disk = "") -> Answer:
    """Add an empty disk that waits: it receives the log, and then gets a vote."""
    await mq.admin.members.add(enode, member, disk)
    return Answer(
        {"enode": enode, "added": member},
        f"added replica {member} to {enode}; it receives the log first (`ortoo enode members {enode}`)",
    )


async def remove(mq: "Client", enode: EnodeName, member: Number, disk: Disk = "") -> Answer:
    """Remove a replica, such as one with a lost disk. To replace one, add the new one first."""
    await mq.admin.members.remove(enode, member, disk)
    return Answer({"enode": enode, "removed": member}, f"removed replica {member} from {enode}")


async def accept_store(
    mq: "Client",
    enode: EnodeName,
    store: Annotated[str, typer.Argument(help="The id of the new store, as in the error and in `ortoo doctor`.")],
) -> Answer:
    """Accept another store of an enode. Messages that only the former store holds are lost."""
    former = await mq.admin.members.accept_store(enode, store)
    if former == store:
        return Answer({"enode": enode, "store": store, "former_store": former}, f"{enode} keeps its store {store}")
    return Answer(
        {"enode": enode, "store": store, "former_store": former},
        f"accepted store {store} of {enode}; after it has registered, its former store {former} is rejected",
    )
