"""The limits of a server's connections, and the choice of connections to close; without I/O."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from ortoo.common.grpc.limits.connections import Peer, ServerConnection

CONNECTION_BYTES: Final = 64 << 10
"""The approximate memory of an idle connection: 15 KiB in plaintext, 36 KiB with TLS, and as much in the kernel."""
CONNECTIONS_MIN: Final = 64
PENDING_CALL_BYTES: Final = 32 << 10
"""The approximate memory of a call that gRPC's core has received and the process has not: mostly its headers.

The transport h2 has no such calls.
"""
PENDING_PERCENT: Final = 10
"""The memory of such calls, as a percentage of the budget of clients."""
PENDING_CALLS_MIN, PENDING_CALLS_MAX = 1_000, 3_000
"""The numbers of such calls from which the core by default refuses some, and all."""
ADDRESS_PERCENT: Final = 50
"""The default percentage of the connections that may come from one address."""
RESETS_PER_S_MAX, RESETS_TOGETHER_MAX = 2_000, 10_000
"""Streams that a peer may reset per second, and its burst. A client resets a stream when its call times out."""
EMPTY_RESETS_PER_S_MAX, EMPTY_RESETS_TOGETHER_MAX = 200, 1_000
"""The same limits for streams on which the peer has sent no request, which no client does."""
ADDRESSES_LOGGED: Final = 5
"""Maximum number of addresses in a line of the log about closed connections."""
HEAVIEST_PERCENT: Final = 75
"""When memory is used up, the connections are closed that sent this percentage of the recently received bytes."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of one listening port."""

    connections_max: int
    of_address_max: int

    @classmethod
    def chosen(cls, connections_max: int, of_address_max: int, memory_bytes: int, descriptors_max: int) -> Self:
        """The operator's limits; 0 = computed from `memory_bytes`, the budget of clients.

        The port never takes more than `descriptors_max` connections, its part of the process's file descriptors. More
        connections would take descriptors that the store needs.
        """
        wanted = connections_max or max(memory_bytes // CONNECTION_BYTES, CONNECTIONS_MIN)
        total = max(min(wanted, descriptors_max), 1)
        return cls(total, of_address_max or max(1, total * ADDRESS_PERCENT // 100))

    def surplus(self, connections: Sequence[ServerConnection]) -> list[ServerConnection]:
        """The connections to close: of each address with too many connections, those that were silent longest."""
        by_address: defaultdict[str, list[ServerConnection]] = defaultdict(list)
        for one in connections:
            by_address[one.peer[0]].append(one)
        surplus: list[ServerConnection] = []
        for of_address in by_address.values():
            if len(of_address) > self.of_address_max:
                of_address.sort(key=lambda one: -one.silent_ms)
                surplus += of_address[: len(of_address) - self.of_address_max]
        return surplus


def pending_calls_max(memory_bytes: int) -> int:
    """The number of calls that may wait in gRPC's core for the process; `memory_bytes` is the budget of clients."""
    fitting = memory_bytes * PENDING_PERCENT // 100 // PENDING_CALL_BYTES
    return min(max(fitting, PENDING_CALLS_MIN), PENDING_CALLS_MAX)


@dataclass(frozen=True, slots=True)
class Resets:
    """The number of a peer's stream resets, and of its messages."""

    count: int
    messages: int


class ResetRates:
    """Detects peers that open and reset streams faster than any client does, for longer than a burst."""

    def __init__(self) -> None:
        self._known: dict[Peer, _Excess] = {}

    def is_beyond(self, peer: Peer, done: Resets, now_s: float) -> bool:
        """Whether to disconnect a peer; `done` has the counts of its connection until now."""
        before = self._known.get(peer)
        if before is None:
            self._known[peer] = _Excess(done, now_s, 0.0, 0.0)
            return False
        seconds, resets = now_s - before.at_s, done.count - before.done.count
        empty = resets - (done.messages - before.done.messages)
        excess = max(0.0, before.resets + resets - RESETS_PER_S_MAX * seconds)
        excess_empty = max(0.0, before.empty + empty - EMPTY_RESETS_PER_S_MAX * seconds)
        self._known[peer] = _Excess(done, now_s, excess, excess_empty)
        return excess > RESETS_TOGETHER_MAX or excess_empty > EMPTY_RESETS_TOGETHER_MAX

    def keep(self, peers: Collection[Peer]) -> None:
        """Forget all peers except `peers`, because the connections of all other peers are closed."""
        self._known = {peer: known for peer, known in self._known.items() if peer in peers}


@dataclass(frozen=True, slots=True)
class _Excess:
    """A peer's counts at one check, and its excess over the permitted rates."""

    done: Resets
    at_s: float
    resets: float
    empty: float


def heaviest(connections: Iterable[ServerConnection], before: Mapping[Peer, int]) -> list[ServerConnection]:
    """The fewest connections, at least one, that sent HEAVIEST_PERCENT of the bytes received since `before`.

    `before` has the number of bytes that each peer had sent at an earlier time.
    """
    grown = sorted(
        ((one.received_bytes - before.get(one.peer, 0), one) for one in connections), key=lambda pair: -pair[0]
    )
    total, taken, found = sum(size for size, _ in grown), 0, list[ServerConnection]()
    for size, one in grown:
        if found and taken * 100 >= total * HEAVIEST_PERCENT:
            break
        taken += size
        found.append(one)
    return found
