"""What a name server knows to be wrong: its database, and processes that it refuses."""

from collections.abc import Iterator, Mapping

from ortoo.common.errors.findings import Finding
from ortoo.namesrv.catalog.catalog import Catalog


def findings(catalog: Catalog, refused: Mapping[str, str]) -> Iterator[Finding]:
    """What is wrong now; `refused` are processes that got no lease, and why."""
    if catalog.failure:
        yield Finding(
            "database away",
            f"the name server's database does not answer: {catalog.failure}",
            "topics, groups and users cannot be changed; sending and receiving go on",
            "look at PostgreSQL, or at the disk of data_dir, then at the name server's log; it heals by itself",
        )
    for who, reason in sorted(refused.items()):
        yield Finding(
            "refused double",
            f"{who} was refused: {reason}",
            "it gets no lease, and nobody is sent there",
            "stop one of the two, or give one another name (-p shows its settings)",
        )
