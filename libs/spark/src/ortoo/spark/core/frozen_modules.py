"""Excludes modules from garbage collections.

Spark collects the garbage of a Python worker after each task. With the modules of Spark and of the client, each of
these collections costs 40 ms of processor time.
"""

import gc
import sys

_frozen_count = 0


def freeze_modules() -> None:
    """Exclude all modules from garbage collections. This does nothing if no module was imported since the last call.

    Objects that are garbage at this moment are never collected, so the function must not be called for each task.
    """
    global _frozen_count
    if len(sys.modules) != _frozen_count:
        gc.freeze()
        _frozen_count = len(sys.modules)
