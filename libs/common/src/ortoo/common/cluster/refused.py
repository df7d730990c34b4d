"""What an operator is told of a process that a name server refuses, by the name server and by the process itself."""

from ortoo.common.errors import Conflict, Fenced
from ortoo.common.errors.findings import Finding

STORE_FIELD = "store_id"
"""The field of a refusal that says: the enode is known by another store than it came with."""
DOUBLE_FIELD = f"enode.{STORE_FIELD}"
"""As `STORE_FIELD`, and a process with the known store is alive."""
OTHER_STORE_FIELDS = (STORE_FIELD, DOUBLE_FIELD)
"""The refusals that an operator has to resolve. A store that is refused so takes no messages."""
LEASE_FIELD = "enode.name"
"""The field of a refusal that ends with the lease of the former process. The store may succeed the known one."""


def refused(seen: str, error: Conflict | Fenced) -> Finding:
    """The finding; `seen` says which process is refused, and why."""
    if error.field == STORE_FIELD:
        return Finding(
            "another store",
            seen,
            "the enode gets no lease and takes no messages, lest it give offsets and message ids a second time",
            "mount its volume and correct its data_dir, then restart it; if its former store is gone for good, "
            "ortoo enode accept-store ENODE STORE",
        )
    return Finding(
        "refused double",
        seen,
        "it gets no lease: nobody is sent there, and of two with one name one cannot serve",
        "stop one of the two, or give one another name (-p shows its settings)",
    )
