"""Results of a group's recent pops, so that a retried pop gets the same messages, and the cancelled pops."""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from ortoo.common.groups.pop import LeasePart, PoppedBatch, ranges_of

ATTEMPTS_REMEMBERED = 1_000
"""The number of pops with an attempt id whose results a group remembers."""
CANCELLED_RETENTION_S = 180.0
"""A cancelled request may still arrive, or wait here, for this long. After that it cannot arrive any more."""
CANCELLED_MAX = 10_000
"""The number of cancelled requests that a group remembers; the oldest are dropped first."""

PopRequestKey = tuple[str, str]
"""(attempt id, request id); an empty request id stands for all of the attempt."""


class PopAttempts:
    """The attempt ids of one group in one topic. Times are monotonic seconds."""

    def __init__(self) -> None:
        """Begin empty."""
        self._leased: OrderedDict[str, dict[str, list[LeasePart]]] = OrderedDict()
        """Attempt id to request id to the parts that the request got."""
        self._cancelled: OrderedDict[PopRequestKey, float] = OrderedDict()
        """Request to the time at which it may be dropped. All are kept equally long, so the oldest is the first."""

    def is_cancelled(self, request: PopRequestKey) -> bool:
        """Whether a request, or its whole attempt, was cancelled, so that it must get no messages."""
        return bool(self._cancelled) and (request in self._cancelled or (request[0], "") in self._cancelled)

    def record(self, request: PopRequestKey, batches: Sequence[PoppedBatch]) -> None:
        """Remember the messages of a request. Later requests of the same attempt get the same messages."""
        attempt_id, request_id = request
        leases: dict[tuple[int, int], list[int]] = {}
        for one in batches:
            leases.setdefault((one.queue_id, one.number), []).extend(one.offsets)
        parts = [LeasePart(*lease, ranges_of(offsets), is_exact=False) for lease, offsets in leases.items()]
        self._leased.setdefault(attempt_id, {})[request_id] = parts
        self._leased.move_to_end(attempt_id)
        while len(self._leased) > ATTEMPTS_REMEMBERED:
            self._leased.popitem(last=False)

    def take_over(self, request: PopRequestKey, lease_again: Callable[[LeasePart], LeasePart]) -> list[LeasePart]:
        """Lease the messages of the attempt's earlier requests again. They now belong to this request alone."""
        attempt_id, request_id = request
        leased = self._leased.get(attempt_id)
        if leased is None:
            return []
        parts = [lease_again(part) for one in leased.values() for part in one]
        self._leased[attempt_id] = {request_id: parts}
        return parts

    def cancel(self, request: PopRequestKey, now_s: float) -> list[LeasePart]:
        """Cancel a request, or its whole attempt if the request id is empty; returns the parts to release."""
        attempt_id, request_id = request
        self.expire_cancelled(now_s)
        self._cancelled[request] = now_s + CANCELLED_RETENTION_S
        self._cancelled.move_to_end(request)
        if len(self._cancelled) > CANCELLED_MAX:
            self._cancelled.popitem(last=False)
        if not request_id:
            return [part for one in self._leased.pop(attempt_id, {}).values() for part in one]
        return self._leased.get(attempt_id, {}).pop(request_id, [])

    def restore(self, request: PopRequestKey, parts: list[LeasePart]) -> None:
        """Keep the parts of a cancelled request that could not be released. The request must be cancelled again."""
        attempt_id, request_id = request
        self._leased.setdefault(attempt_id, {}).setdefault(request_id, []).extend(parts)

    def expire_cancelled(self, now_s: float) -> None:
        """Forget cancellations so old that their requests can no longer arrive."""
        while self._cancelled and next(iter(self._cancelled.values())) <= now_s:
            self._cancelled.popitem(last=False)

    @property
    def is_idle(self) -> bool:
        """Whether no cancelled request is remembered."""
        return not self._cancelled
