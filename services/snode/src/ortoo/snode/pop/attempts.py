"""The attempt ids whose pops may have leased messages before, at this snode or at another one."""

from collections import OrderedDict

from ortoo.snode.pop.call import PopCall

NEW_S = 60.0
"""For this time after the first pop of a consumer, its attempts may have begun at another snode."""
AWAY_S = 10.0
"""A consumer without a pop for this time may have popped at another snode meanwhile."""
CONSUMERS_MAX = 100_000
ATTEMPTS_MAX = 100_000
Consumer = tuple[str, str, str]
"""Group, topic, name."""


class RecentAttempts:
    """Decides whether a pop repeats an attempt, so that enodes may hold messages for it that are not free.

    The decision may be wrong for a consumer that pops at another snode for a moment. The messages of its attempt are
    then delivered when their lease has ended.
    """

    def __init__(self) -> None:
        self._consumers: OrderedDict[Consumer, tuple[float, float]] = OrderedDict()
        """The monotonic times of the first and of the last pop, since the consumer was away."""
        self._popped: OrderedDict[str, None] = OrderedDict()
        """The attempt ids of pops that returned messages."""

    def begin(self, call: PopCall, now_s: float) -> bool:
        """Note the begin of a pop; returns whether its attempt may have leased messages before."""
        if not call.attempt_id:
            return False
        consumer = (call.group, call.topic, call.consumer)
        first_s, last_s = self._consumers.get(consumer, (now_s, now_s))
        first_s = self._set(consumer, now_s if now_s - last_s > AWAY_S else first_s, now_s)
        return now_s - first_s < NEW_S or call.attempt_id in self._popped

    def end(self, call: PopCall, now_s: float, *, has_messages: bool) -> None:
        """Note the end of a pop."""
        if not call.attempt_id:
            return
        consumer = (call.group, call.topic, call.consumer)
        self._set(consumer, self._consumers.get(consumer, (now_s, now_s))[0], now_s)
        if has_messages:
            self._popped[call.attempt_id] = None
            if len(self._popped) > ATTEMPTS_MAX:
                self._popped.popitem(last=False)

    def _set(self, consumer: Consumer, first_s: float, last_s: float) -> float:
        self._consumers[consumer] = first_s, last_s
        self._consumers.move_to_end(consumer)
        if len(self._consumers) > CONSUMERS_MAX:
            self._consumers.popitem(last=False)
        return first_s
