"""Answers to calls that clients repeat at intervals, such as heartbeats, without decoding, encoding or a task.

A handler declares by `start` (see `direct`) that its answer also holds for equal requests:

    done(Repeatable(answer, holds))

`holds(caller)` does the work of the handler for an equal request. It returns False if the answer may differ now,
and then it has changed nothing. The call is then served as usual.

The layers of the method decide about repeated calls by `Layer.always_repeats` and `Layer.repeat_key`.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ortoo.common.grpc.layers.arrival import RepeatCaller
from ortoo.common.grpc.layers.layer import Layer, Method, hooks_of

KEPT_BYTES_MAX: Final = 16 << 20
"""Maximum memory of the answers of one method. The answers that were not used for longest are dropped."""
ENTRY_BYTES: Final = 600
"""Approximate memory of one answer without its bytes and those of its request."""
ITEM_BYTES_MAX: Final = 4 << 10
"""Larger requests and answers are not kept."""
Key = tuple[bytes, ...]
"""The request, and the key of each layer."""

Holds = Callable[[RepeatCaller], bool]
"""Serves an equal request of a caller; False = not possible."""


class Repeatable(NamedTuple):
    """The answer of a handler, for this request and for equal ones."""

    answer: Any
    holds: Holds


class RepeatedAnswers:
    """The encoded answers of one method, by request. Without I/O and clock."""

    def __init__(self, method: Method, layers: Sequence[Layer], bytes_max: int = KEPT_BYTES_MAX) -> None:
        """`layers` are those of the method."""
        self._method = method
        self.key = layer_key(layers)
        """The key of a caller, with a request as its first part; None if a layer has to see the call."""
        self._observers = [one for one in hooks_of(layers, "on_repeated") if one is not None]
        self._kept: OrderedDict[Key, tuple[bytes, Holds]] = OrderedDict()
        self._bytes_max = bytes_max
        self._bytes = 0

    def __len__(self) -> int:
        """The number of kept answers."""
        return len(self._kept)

    def answer(self, key: Key, caller: RepeatCaller) -> bytes | None:
        """The answer to a repeated call, which is thereby served; None if the call has to be served as usual."""
        found = self._kept.get(key)
        if found is None or not found[1](caller):
            return None
        self._kept.move_to_end(key)
        for observer in self._observers:
            observer(self._method)
        return found[0]

    def keep(self, key: Key, answer: bytes, holds: Holds) -> None:
        """Keep the answer to a call for equal calls."""
        if len(key[0]) > ITEM_BYTES_MAX or len(answer) > ITEM_BYTES_MAX:
            return
        self._drop(key)
        self._kept[key] = answer, holds
        self._bytes += _bytes_of(key, answer)
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: Key) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._bytes -= _bytes_of(key, found[0])


def layer_key(layers: Sequence[Layer]) -> Callable[..., Key | None]:
    """A function that returns the facts that layers depend on; None if one of them has to see the call."""
    keys = [one.repeat_key for one in layers if not one.always_repeats]

    def found(caller: RepeatCaller, *key: bytes) -> Key | None:
        for one in keys:
            fact = one(caller)
            if fact is None:
                return None
            key += (fact,)
        return key

    return found


def _bytes_of(key: Key, answer: bytes) -> int:
    return ENTRY_BYTES + sum(map(len, key)) + len(answer)
