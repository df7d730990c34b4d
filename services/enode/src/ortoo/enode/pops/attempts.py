"""What the pops of a group got, for those who ask again, and which of them nobody waits for any more."""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from ortoo.common.groups.pop import LeasePart, PoppedBatch, runs

ATTEMPTS_REMEMBERED = 1_000
"""Of so many pops with an attempt id a group remembers what they got."""
CALLED_OFF_S = 180.0
"""So long after it was called off a request may still arrive, or wait here; then nobody sends it any more."""
CALLED_OFF_MAX = 10_000
"""So many that were called off a group remembers, the newest ones."""

Request = tuple[str, str]
"""(attempt id, request id); an empty request id stands for all of the attempt."""


class Attempts:
    """The attempt ids of one group in one topic. Times are monotonic seconds."""

    def __init__(self) -> None:
        """Nobody popped yet."""
        self._given: OrderedDict[str, dict[str, list[LeasePart]]] = OrderedDict()
        """Attempt id to request id to what that request got."""
        self._called_off: OrderedDict[Request, float] = OrderedDict()
        """To when it may be forgotten; all of them are kept for the same time, so that the oldest is the first."""

    def is_called_off(self, request: Request) -> bool:
        """Whether nobody waits for a request any more, so that it is to be given nothing."""
        return bool(self._called_off) and (request in self._called_off or (request[0], "") in self._called_off)

    def got(self, request: Request, batches: Sequence[PoppedBatch]) -> None:
        """A request got these messages; others of its attempt may ask for them again."""
        attempt_id, request_id = request
        parts = [LeasePart(one.queue_id, one.number, runs(one.offsets), is_exact=False) for one in batches]
        self._given.setdefault(attempt_id, {})[request_id] = parts
        self._given.move_to_end(attempt_id)
        while len(self._given) > ATTEMPTS_REMEMBERED:
            self._given.popitem(last=False)

    def again(self, request: Request, leased_anew: Callable[[LeasePart], LeasePart]) -> list[LeasePart]:
        """What the requests of an attempt got, leased anew. It is this one's now: the others may be called off."""
        attempt_id, request_id = request
        given = self._given.get(attempt_id)
        if given is None:
            return []
        parts = [leased_anew(part) for one in given.values() for part in one]
        self._given[attempt_id] = {request_id: parts}
        return parts

    def call_off(self, request: Request, now_s: float) -> list[LeasePart]:
        """Nobody waits for a request any more, or for any of its attempt; returns what is to be given back."""
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
        """What a request that was called off got could not be given back; it is to be called off once more."""
        attempt_id, request_id = request
        self._given.setdefault(attempt_id, {}).setdefault(request_id, []).extend(parts)

    def forget_old(self, now_s: float) -> None:
        """Forget what was called off so long ago that it cannot come any more."""
        while self._called_off and next(iter(self._called_off.values())) <= now_s:
            self._called_off.popitem(last=False)

    @property
    def are_idle(self) -> bool:
        """Whether nothing is remembered that was called off."""
        return not self._called_off
