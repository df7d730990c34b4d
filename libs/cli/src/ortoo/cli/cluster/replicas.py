"""`ortoo enode`: the replicas of enodes, and their leaders."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ortoo.cli.terminal.command import Commands, EnodeName
from ortoo.cli.terminal.completion import complete_enodes
from ortoo.cli.terminal.output import Columns, CommandOutput, OutputTable

if TYPE_CHECKING:
    from ortoo.client import Client, ReplicaSetInfo

GIB = 1 << 30
DAY_MS = 86_400_000
Number = Annotated[int, typer.Argument(help="The replica's number, as `enode replicas` prints it.")]
Disk = Annotated[str, typer.Option(help="The replica's disk, if two disks have the same number.")]


async def show(
    mq: "Client",
    enode: Annotated[
        str,
        typer.Argument(help="The enode; without it, all enodes with several replicas.", autocompletion=complete_enodes),
    ] = "",
) -> CommandOutput:
    """Show the leader, the state and the lag of each replica."""
    replica_sets = await mq.admin.replicas.list(enode)
    rows = [(one, replica) for one in replica_sets for replica in one.replicas]
    columns: Columns = {
        "ENODE": lambda it: it[0].enode,
        "REPLICA": lambda it: it[1].number,
        "STATE": lambda it: it[1].state,
        "EPOCH": lambda it: it[1].epoch,
        "END": lambda it: it[1].tail_position,
        "COMMITTED": lambda it: it[1].committed,
        "BEHIND": lambda it: "-" if it[1].lag_bytes is None else it[1].lag_bytes,
        "ADDRESS": lambda it: it[1].address or "-",
        "REPORTED": lambda it: _ago(it[1].reported_ms_ago),
        "DISK": lambda it: it[1].disk,
    }
    if not replica_sets:
        return CommandOutput(replica_sets, "no enode has more than one replica, or none reports")
    return CommandOutput(
        replica_sets, (OutputTable(columns, rows), *(_leaderless(one) for one in replica_sets if one.leader is None))
    )


async def disks(
    mq: "Client",
    enode: Annotated[
        str, typer.Argument(help="The enode; without it, all enodes.", autocompletion=complete_enodes)
    ] = "",
) -> CommandOutput:
    """Show the free space of each replica's disk, and the time until the disk is full."""
    found = await mq.admin.replicas.list_disks(enode)
    columns: Columns = {
        "ENODE": "enode",
        "REPLICA": lambda one: one.replica or "-",
        "FREE": lambda one: "-" if one.disk is None else f"{one.disk.free_bytes / GIB:.1f} GiB",
        "SIZE": lambda one: "-" if one.disk is None else f"{one.disk.size_bytes / GIB:.1f} GiB",
        "FREE INODES": lambda one: "-" if one.disk is None or not one.disk.inodes else one.disk.free_inodes,
        "FULL IN": lambda one: (
            "-" if one.disk is None or one.disk.full_in_ms is None else f"{one.disk.full_in_ms / DAY_MS:.1f} days"
        ),
        "ADDRESS": "address",
        "ERROR": "error",
    }
    return CommandOutput(found, OutputTable(columns, found))


def _ago(time_ms: int | None) -> str:
    return "never" if time_ms is None else f"{time_ms / 1000:.1f} s ago"


def _leaderless(found: "ReplicaSetInfo") -> str:
    proposed = f", replica {found.proposed} is proposed in epoch {found.proposed_epoch}" if found.proposed else ""
    return f"{found.enode} has no leader{proposed}; the quorum is {found.majority}"


async def transfer_leadership(
    mq: "Client",
    enode: EnodeName,
    to: Annotated[int | None, typer.Option(help="The new leader; without it the replica with the longest log.")] = None,
) -> CommandOutput:
    """Transfer leadership to another replica. Acknowledged messages are kept, and clients see a short pause."""
    successor = await mq.admin.replicas.transfer_leadership(enode, to)
    return CommandOutput(
        {"enode": enode, "successor": successor}, f"transferred leadership of {enode} to replica {successor}"
    )


async def elect(mq: "Client", enode: EnodeName, replica: Number, disk: Disk = "") -> CommandOutput:
    """Propose a replica as the leader of an enode without a leader.

    With two replicas, only the last leader is proposed automatically.
    """
    epoch = await mq.admin.replicas.elect(enode, replica, disk)
    return CommandOutput(
        {"enode": enode, "replica": replica, "epoch": epoch},
        f"proposed replica {replica} of {enode} in epoch {epoch}; `ortoo enode replicas {enode}` shows if it leads",
    )


async def add(mq: "Client", enode: EnodeName, replica: Number, disk: Disk = "") -> CommandOutput:
    """Add a running replica whose disk is empty: it receives the log first, and then gets a vote."""
    await mq.admin.replicas.add(enode, replica, disk)
    return CommandOutput(
        {"enode": enode, "added": replica},
        f"added replica {replica} to {enode}; it receives the log first (`ortoo enode replicas {enode}`)",
    )


async def remove(mq: "Client", enode: EnodeName, replica: Number, disk: Disk = "") -> CommandOutput:
    """Remove a replica, for example after the loss of its disk. To replace a replica, add the new replica first."""
    await mq.admin.replicas.remove(enode, replica, disk)
    return CommandOutput({"enode": enode, "removed": replica}, f"removed replica {replica} from {enode}")


async def accept_store(
    mq: "Client",
    enode: EnodeName,
    store: Annotated[str, typer.Argument(help="The id of the new store, as in the error and in `ortoo doctor`.")],
) -> CommandOutput:
    """Accept another data folder (store) for an enode. Messages that only the former store holds are lost."""
    former = await mq.admin.replicas.accept_store(enode, store)
    if former == store:
        return CommandOutput(
            {"enode": enode, "store": store, "former_store": former}, f"{enode} keeps its store {store}"
        )
    effect = f"after it has registered, its former store {former} is rejected" if former else "start the enode again"
    return CommandOutput(
        {"enode": enode, "store": store, "former_store": former}, f"accepted store {store} of {enode}; {effect}"
    )


async def forget(
    mq: "Client",
    enode: EnodeName,
    lose: Annotated[bool, typer.Option("--lose", help="Forget it with the messages that only it has.")] = False,
) -> CommandOutput:
    """Forget an enode that does not come back. Without --lose it is refused if only the enode has some messages."""
    found = await mq.admin.replicas.forget(enode, lose=lose)
    lines = [
        f"{text}: {', '.join(names)}"
        for text, names in (
            ("topics without their queues on it", found.reduced_topics),
            ("topics with empty queues on the live enodes", found.moved_topics),
            ("deleted topics that cannot be restored", found.lost_deleted_topics),
        )
        if names
    ]
    return CommandOutput({"enode": enode, **asdict(found)}, (f"enode {enode} is forgotten", *lines))


COMMANDS: Commands = {
    "replicas": show,
    "disks": disks,
    "hand-over": transfer_leadership,
    "elect": elect,
    "add": add,
    "remove": remove,
    "accept-store": accept_store,
    "forget": forget,
}
"""The commands of `ortoo enode`, by name."""
