"""Results of a group's recent pops, so that a retried pop gets the same messages; and which pops were cancelled."""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from ortoo.common.groups.pop import LeasePart, PoppedBatch, runs

ATTEMPTS_REMEMBERED = 1_000
"""The number of pops with an attempt id whose results a group remembers."""
CALLED_OFF_S = 180.0
"""A cancelled request may still arrive, or wait here, for this long. After that it cannot arrive any more."""
CALLED_OFF_MAX = 10_000
"""The number of cancelled requests that a group remembers; the oldest are dropped first."""

Request = tuple[str, str]
"""(attempt id, request id); an empty request id stands for all of the attempt."""


class Attempts:
    """The attempt ids of one group in one topic. Times are monotonic seconds."""

    def __init__(self) -> None:
        """Begin empty."""
        self._given: OrderedDict[str, dict[str, list[LeasePart]]] = OrderedDict()
        """Attempt id to request id to the parts that the request got."""
        self._called_off: OrderedDict[Request, float] = OrderedDict()
        """Request to the time at which it may be dropped. All are kept equally long, so the oldest is the first."""

    def is_called_off(self, request: Request) -> bool:
        """Whether a request, or its whole attempt, was cancelled, so that it must get no messages."""
        return bool(self._called_off) and (request in self._called_off or (request[0], "") in self._called_off)

    def got(self, request: Request, batches: Sequence[PoppedBatch]) -> None:
        """Remember the messages of a request; other requests of its attempt get them again."""
        attempt_id, request_id = request
        parts = [LeasePart(one.queue_id, one.number, runs(one.offsets), is_exact=False) for one in batches]
        self._given.setdefault(attempt_id, {})[request_id] = parts
        self._given.move_to_end(attempt_id)
        while len(self._given) > ATTEMPTS_REMEMBERED:
            self._given.popitem(last=False)

    def again(self, request: Request, leased_anew: Callable[[LeasePart], LeasePart]) -> list[LeasePart]:
        """The messages of an attempt's earlier requests, leased again. They now belong to this request alone."""
        attempt_id, request_id = request
        given = self._given.get(attempt_id)
        if given is None:
            return []
        parts = [leased_anew(part) for one in given.values() for part in one]
        self._given[attempt_id] = {request_id: parts}
        return parts

    def call_off(self, request: Request, now_s: float) -> list[LeasePart]:
        """Cancel a request, or all of its attempt if the request id is empty; returns the parts to release."""
        attempt_id, request_id = request
        self.forget_old(now_s)
        self._called_off[request] = now_s + CALLED_OFF_S
        self._called_off.move_to_end(request)
        if len(self._called_off) > CALLED_OFF_MAX:
            self._called_off.popitem(last=False)
        if not request_id:
            return [part for one in self._given.pop(attempt_id, {}).values() for part in one]
        return self._given.get(attempt_id, {}).pop(request_id, [])

    def still_has(self, request: Request, parts: list[LeasePart]) -> None:
        """Keep the parts of a cancelled request that could not be released; it has to be cancelled once more."""
        attempt_id, request_id = request
        self._given.setdefault(attempt_id, {}).setdefault(request_id, []).extend(parts)

    def forget_old(self, now_s: float) -> None:
        """Drop cancelled requests that are too old to arrive any more."""
        while self._called_off and next(iter(self._called_off.values())) <= now_s:
            self._called_off.popitem(last=False)

    @property
    def are_idle(self) -> bool:
        """Whether no cancelled request is remembered."""
        return not self._called_off
