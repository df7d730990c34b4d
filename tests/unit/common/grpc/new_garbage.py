"""Counts the garbage that a block of code makes."""

import contextlib
import gc
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def new_garbage() -> Iterator[Callable[[], int]]:
    """Yield a function that collects, and returns the number of unreachable objects that were made in the block.

    Objects of earlier tests, which may become garbage meanwhile, do not count. They stay frozen for the process.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield gc.collect
    finally:
        gc.enable()
