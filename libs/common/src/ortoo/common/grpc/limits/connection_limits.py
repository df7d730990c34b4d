"""How many connections a server takes, and which ones it ends. Pure."""

import resource
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from ortoo.common.grpc.limits.connections import Connection, Peer

CONNECTION_BYTES: Final = 64 << 10
"""What an idle connection costs, about: 15 KiB in the clear, 36 KiB with TLS, and as much in the kernel."""
CONNECTIONS_MIN: Final = 64
DESCRIPTORS_PERCENT: Final = 50
"""What part of the process's descriptors connections may take, unless an operator chooses their number."""
ADDRESS_PERCENT: Final = 50
"""What part of the connections may come from one address, unless an operator chooses their number."""
RESETS_PER_S_MAX: Final = 2_000
"""How many streams a peer may open and reset each second. They cost about a tenth of a core."""
RESET_LOOKS: Final = 2
"""In how many looks in a row a peer must be beyond that: all its calls may time out together once."""


HEAVIEST_PERCENT: Final = 75
"""What part of the bytes that were received of late the connections sent that are ended when memory is used up."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of one listening port."""

    connections_max: int
    of_address_max: int

    @classmethod
    def chosen(cls, connections_max: int, of_address_max: int, memory_bytes: int) -> Self:
        """As an operator chose them; 0 = by `memory_bytes`, which clients may hold, and this process's descriptors."""
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors == resource.RLIM_INFINITY:
            descriptors = 1 << 30
        possible = min(memory_bytes // CONNECTION_BYTES, descriptors * DESCRIPTORS_PERCENT // 100)
        total = connections_max or max(possible, CONNECTIONS_MIN)
        return cls(total, of_address_max or max(1, total * ADDRESS_PERCENT // 100))

    def surplus(self, connections: Sequence[Connection]) -> list[Connection]:
        """The connections to end: of each address with too many those whose peers have been silent longest."""
        count = Counter(one.peer[0] for one in connections)
        surplus: list[Connection] = []
        for address, number in count.items():
            if number > self.of_address_max:
                of_address = [one for one in connections if one.peer[0] == address]
                of_address.sort(key=lambda one: -one.silent_ms)
                surplus += of_address[: number - self.of_address_max]
        return surplus


class ResetRates:
    """Which peers open and reset streams faster than a client has reason to, for longer than a moment."""

    def __init__(self) -> None:
        self._known: dict[Peer, tuple[int, float, int]] = {}
        """Of each: how many it had reset, when, and in how many looks in a row it was too fast."""

    def are_possible(self, failed_calls: int, seconds: float) -> bool:
        """Whether a peer can be too fast, if so many calls of all peers failed in so many seconds."""
        if failed_calls > RESETS_PER_S_MAX * seconds:
            return True
        self._known.clear()
        return False

    def is_beyond(self, peer: Peer, resets: int, now_s: float) -> bool:
        """Whether to end a peer that has reset so many streams until now."""
        before, at_s, looks = self._known.get(peer, (resets, now_s, 0))
        looks = looks + 1 if resets - before > RESETS_PER_S_MAX * (now_s - at_s) else 0
        self._known[peer] = (resets, now_s, looks)
        return looks >= RESET_LOOKS

    def keep(self, peers: Collection[Peer]) -> None:
        """Forget all others: their connections are gone."""
        self._known = {peer: known for peer, known in self._known.items() if peer in peers}


def heaviest(connections: Iterable[Connection], before: Mapping[Peer, int]) -> list[Connection]:
    """Those that sent most since `before`, which has what each had sent: HEAVIEST_PERCENT of all, at least one."""
    grown = sorted(
        ((one.received_bytes - before.get(one.peer, 0), one) for one in connections), key=lambda pair: -pair[0]
    )
    total, taken, found = sum(size for size, _ in grown), 0, list[Connection]()
    for size, one in grown:
        if found and taken * 100 >= total * HEAVIEST_PERCENT:
            break
        taken += size
        found.append(one)
    return found
