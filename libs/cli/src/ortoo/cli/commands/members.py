"""`ortoo enode`: the members of enodes, and who of them leads."""

from typing import TYPE_CHECKING, Annotated

import typer

from ortoo.cli.terminal.command import EnodeName
from ortoo.cli.terminal.completion import offered_enodes
from ortoo.cli.terminal.output import Answer, Columns, Table

if TYPE_CHECKING:
    from ortoo.client import Client, EnodeMembers

Number = Annotated[int, typer.Argument(help="The member's number, as `enode members` prints it.")]
Disk = Annotated[str, typer.Option(help="The member's disk, where two disks have one number.")]


async def show(
    mq: "Client",
    enode: Annotated[
        str, typer.Argument(help="One enode; without it all that have members.", autocompletion=offered_enodes)
    ] = "",
) -> Answer:
    """Show who leads, who is there, and who is how far behind."""
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
        return Answer(found, "no enode has more than one member, or none reports")
    return Answer(found, (Table(columns, rows), *(_leaderless(one) for one in found if one.leader is None)))


def _ago(time_ms: int | None) -> str:
    return "never" if time_ms is None else f"{time_ms / 1000:.1f} s ago"


def _leaderless(found: "EnodeMembers") -> str:
    proposed = f"; member {found.proposed} is proposed in epoch {found.proposed_epoch}" if found.proposed else ""
    return f"nobody leads {found.enode}{proposed}; {found.majority} of its members have to agree"


async def hand_over(
    mq: "Client",
    enode: EnodeName,
    to: Annotated[int | None, typer.Option(help="Which member; without it the one that has the most.")] = None,
) -> Answer:
    """Let another member lead. Nothing that is acknowledged is lost, and clients see a short pause."""
    successor = await mq.admin.members.hand_over(enode, to)
    return Answer({"enode": enode, "successor": successor}, f"handed {enode} over to member {successor}")


async def elect(mq: "Client", enode: EnodeName, member: Number, disk: Disk = "") -> Answer:
    """Have a member lead when nobody does and nobody takes over by itself, as of two members."""
    epoch = await mq.admin.members.elect(enode, member, disk)
    return Answer(
        {"enode": enode, "member": member, "epoch": epoch},
        f"proposed member {member} of {enode} in epoch {epoch}; `ortoo enode members {enode}` shows when it leads",
    )


async def add(mq: "Client", enode: EnodeName, member: Number, disk: Disk = "") -> Answer:
    """Add an empty disk that waits: it gets the log, and votes when it has it."""
    await mq.admin.members.add(enode, member, disk)
    return Answer(
        {"enode": enode, "added": member},
        f"added member {member} to {enode}; it learns first (`ortoo enode members {enode}`)",
    )


async def remove(mq: "Client", enode: EnodeName, member: Number, disk: Disk = "") -> Answer:
    """Remove a member, such as one whose disk is lost. To replace one, add the other first."""
    await mq.admin.members.remove(enode, member, disk)
    return Answer({"enode": enode, "removed": member}, f"removed member {member} from {enode}")


async def accept_store(
    mq: "Client",
    enode: EnodeName,
    store: Annotated[str, typer.Argument(help="The id of its store, as the refusal and `ortoo doctor` name it.")],
) -> Answer:
    """Accept that an enode comes back with another store. What only the former store holds is given up then."""
    former = await mq.admin.members.accept_store(enode, store)
    if former == store:
        return Answer({"enode": enode, "store": store, "former_store": former}, f"{enode} keeps its store {store}")
    return Answer(
        {"enode": enode, "store": store, "former_store": former},
        f"accepted store {store} of {enode}; its former store {former} is refused once the accepted one has come",
    )
