"""What a process is to the log that carries its enode's name, and whose disks an acknowledgement speaks of."""

import enum

SLAVE_MEMORY_LESS_PERCENT = 10
"""A member that follows serves no readers, so its memory is better left to the page cache."""


class Durability(enum.StrEnum):
    """When a send is acknowledged in an enode of several members. Everything else waits for a majority's disks."""

    REPLICAS = "replicas"
    """When it is on a majority of the members' disks."""
    LEADER = "leader"
    """When it is on the leader's disk: a take-over may lose it."""


class NodeRole(enum.StrEnum):
    """RocketMQ's roles, with its names."""

    ASYNC_MASTER = "ASYNC_MASTER"
    """May lead, and then acknowledges sends when its own disk has them."""
    SYNC_MASTER = "SYNC_MASTER"
    """May lead, and then acknowledges sends when a majority of disks has them."""
    SLAVE = "SLAVE"
    """Follows, and leads only when an operator elects it."""


DURABILITY_OF = {NodeRole.ASYNC_MASTER: Durability.LEADER, NodeRole.SYNC_MASTER: Durability.REPLICAS}
"""What a role says about acknowledgements, when it is chosen by name."""
