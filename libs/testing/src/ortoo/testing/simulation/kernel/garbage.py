"""The moment and the extent of garbage collections."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def explicit_garbage_collection() -> Iterator[None]:
    """Collect garbage only on request, and only objects created inside.

    The moment of a collection must not be random. A test process also holds millions of other objects, so that a full
    collection takes a second or more on a slow machine.
    """
    was_collecting = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_collecting:
            gc.enable()
