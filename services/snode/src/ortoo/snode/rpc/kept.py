"""What is kept of a call's requests, drawn from the memory of its process."""

from ortoo.common.process.memory_budget import MemoryShare

KEPT_FACTOR = 16
"""What is kept of a request takes so many times its bytes, about: names of queues and topics, and where to begin."""


def cost_of(wire_bytes: int) -> int:
    """What is kept of so long a request takes, in bytes."""
    return KEPT_FACTOR * wire_bytes


class Kept:
    """Of requests with one name the last is kept."""

    def __init__(self, memory: MemoryShare) -> None:
        """`memory` is the call's, which gives everything back at its end."""
        self._memory = memory
        self._bytes: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        """How many bytes are kept."""
        return self._bytes.get(name, 0)

    def keep(self, name: str, size_bytes: int) -> None:
        """So many bytes are kept instead; less is never refused. Errors: Overloaded, and it is as before."""
        if (more_bytes := size_bytes - self[name]) > 0:
            self._memory.fix(more_bytes)
        else:
            self._memory.unfix(-more_bytes)
        self._bytes[name] = size_bytes
        if not size_bytes:
            del self._bytes[name]
