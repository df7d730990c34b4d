"""When garbage is looked for, and where."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def garbage_of_its_own() -> Iterator[None]:
    """Collections come only when they are called for, and look only at what was made inside.

    When garbage is found must not be chance; and a test process holds millions of objects of others, so that a look at
    all of them takes a second or more on a slow machine.
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
