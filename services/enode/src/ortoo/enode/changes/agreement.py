"""State changes by which all members forget, and see that they remember, the same; kinds 132 to 134.

Older processes pass over them.
"""

from dataclasses import dataclass
from typing import Annotated

from ortoo.enode.changes.codec import I64, U32, U64, Change, Repeated


@dataclass(frozen=True, slots=True)
class Forget(Change):
    """What nobody is to be told of any more is dropped. Folding it again drops nothing else, however late."""

    idle_before_ms: I64
    """Windows of producers that were last used before."""
    over_before_ms: I64
    """Ids of messages that were to be remembered until then, or not so long."""


@dataclass(frozen=True, slots=True)
class DigestDue(Change):
    """Every member makes digests of its state as it is here."""

    number: U64
    tables: U32
    """Bit by bit, of which tables."""


@dataclass(frozen=True, slots=True)
class StateDigest(Change):
    """The leader's digests of a number, one for each table; 0 for those of which none was due."""

    number: U64
    digests: Annotated[tuple[int, ...], Repeated("Q")]
