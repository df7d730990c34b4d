"""What an enode's process is to the log that carries its name: the one that writes it, or one that keeps a copy."""

import enum

from ortoo.common.errors import Invalid

NO_REPLICATION = "none"
"""The replication address of an enode whose log nobody may follow."""
SLAVE_MEMORY_LESS_PERCENT = 10
"""A replica serves no readers, so its memory is better left to the page cache."""


class NodeRole(enum.StrEnum):
    """RocketMQ's roles, with its names."""

    ASYNC_MASTER = "ASYNC_MASTER"
    """Writes the log, and answers when its own disk has it."""
    SYNC_MASTER = "SYNC_MASTER"
    """Writes the log, and answers when a replica's disk has it too."""
    SLAVE = "SLAVE"
    """Keeps a copy of the log, and can be started as a master when that is lost."""


def check_replica_id(role: NodeRole, replica_id: int) -> None:
    """Refuse a replica without a number of its own. Errors: Invalid."""
    if role is NodeRole.SLAVE and replica_id < 1:
        raise Invalid(f"{replica_id}; a {role} needs a number of its own, 1 or more", field="replica_id")


def replication_address_of(setting: str, listen_address: str) -> str:
    """Where replicas may connect: what is set, else the port after the enode's own; empty = nowhere.

    An enode on any free port (0) gets any free port.
    """
    if setting == NO_REPLICATION:
        return ""
    if setting:
        return setting
    host, _, port = listen_address.rpartition(":")
    following = 0 if port == "0" else int(port) + 1
    return f"{host}:{following}" if following < 65536 else ""
