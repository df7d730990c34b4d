"""The finding about a process that a name server refuses, reported by the name server and by the process."""

from ortoo.common.errors import Conflict, Fenced
from ortoo.common.errors.findings import Finding

STORE_FIELD = "store_id"
"""The field of a refusal because the enode is registered with another store."""
DOUBLE_FIELD = f"enode.{STORE_FIELD}"
"""The field of a refusal like that of `STORE_FIELD`, while a process with the registered store is alive."""
LOG_FIELD = "log.opened_end"
"""The field of a refusal because the log of the enode is shorter than it was."""
OTHER_STORE_FIELDS = (STORE_FIELD, DOUBLE_FIELD, LOG_FIELD)
"""The fields of refusals that an operator has to resolve. A store that is refused with such a field accepts no
messages."""
LEASE_FIELD = "enode.name"
"""The field of a refusal that ends with the lease of the former process. The store may replace the registered one."""

MEMBERSHIP_FIELD = "shares_membership"
"""The field of a refusal because two snodes do not share group membership."""


def refused(observed: str, error: Conflict | Fenced) -> Finding:
    """The finding about a process whose registration is refused; `observed` names the process and the reason."""
    if error.field == STORE_FIELD:
        return Finding(
            "store mismatch",
            observed,
            "the enode gets no lease and takes no messages, because it could assign offsets and message ids twice",
            "mount its volume and correct its data_dir, then restart it; if its former store is lost permanently, "
            "ortoo enode accept-store ENODE STORE",
        )
    if error.field == LOG_FIELD:
        return Finding(
            "log rolled back",
            observed,
            "the enode gets no lease and takes no messages, because it would assign offsets and leases of lost "
            "messages again",
            "mount its newest volume and restart it. If the end of its log is lost permanently, stop it, run "
            "ortoo-enode elect DIR --lose --apply, and start it",
        )
    if error.field == MEMBERSHIP_FIELD:
        return Finding(
            "registration rejected",
            observed,
            "it gets no lease and no clients, because the snodes would not know each other's group members",
            "give all snodes the same redis_url, or stop one of the two",
        )
    return Finding(
        "registration rejected",
        observed,
        "it gets no lease and no clients; of two processes with one name, one cannot serve",
        "stop one of the two, or give one another name (-p shows its settings)",
    )
