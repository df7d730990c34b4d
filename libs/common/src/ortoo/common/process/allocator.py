"""How the C library keeps the memory of large buffers."""

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_MMAP_BYTES = 32 << 20
"""The largest that glibc accepts; buffers below it come from the heap."""
_TRIM_BYTES = 32 << 20
"""How much freed memory at the end of a heap is kept for the next buffers."""


def keep_freed_buffers() -> bool:
    """Keep freed buffers for the next ones instead of giving them back to the kernel at once; whether that worked.

    By default glibc gives a buffer of a megabyte back as soon as it is free, and gets it again, page by page, for the
    next batch: 600 page faults a batch, a third of the time of a proxy. Nothing happens where the C library is another.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES))
