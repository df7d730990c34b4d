"""SIGTERM and Ctrl-C: the first one stops gracefully, the second one ends the process at once."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopping_signals(stop: Callable[[int], object]) -> Iterator[None]:
    """Call `stop` with the number of the first SIGTERM or SIGINT in the block. Only for the main thread.

    After the first signal, both signals have the system's default action, which ends the process. An ignored signal
    stays ignored: shells start programs in the background with SIGINT ignored.
    """
    previous = {number: handler for number in SIGNALS if (handler := signal.getsignal(number)) != signal.SIG_IGN}

    def first(number: int, _: FrameType | None) -> None:
        for one in previous:
            signal.signal(one, signal.SIG_DFL)
        stop(number)

    for number in previous:
        signal.signal(number, first)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
