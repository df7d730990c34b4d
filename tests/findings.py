"""Findings of a cluster that are true on a busy machine, whatever a test does."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

OF_THE_MACHINE = frozenset({"slow disk", "event loop lag"})
"""The simulation of the doctor's faults and the tests of the process metrics make them on purpose."""


class Named(Protocol):
    """A finding of the client or of the doctor."""

    @property
    def name(self) -> str:
        """Its name, which never changes."""


F = TypeVar("F", bound=Named)


def is_of_machine(printed: str) -> bool:
    """Whether the doctor printed such a finding. A test then runs the doctor again, when the machine is less busy."""
    return any(name in printed for name in OF_THE_MACHINE)


def of_cluster(found: Iterable[F]) -> list[F]:
    """The findings without those of the machine."""
    return [one for one in found if one.name not in OF_THE_MACHINE]
