"""How a process keeps memory: the C library the large buffers, Python what may be garbage; and how it gives it back."""

import ctypes
import gc
import os
from pathlib import Path

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_MMAP_BYTES = 32 << 20
"""The largest that glibc accepts; buffers below it come from the heap."""
_M_ARENA_MAX = -8
_ARENAS_MAX = 2
"""How many heaps threads share. glibc makes eight a core, and keeps in each what one of gRPC's threads once needed."""
_TRIM_BYTES = 32 << 20
"""How much freed memory at the end of a heap is kept for the next buffers."""
_YOUNG_MAX = 5_000
"""How many more objects there may be than at the last look for garbage: several times those of the calls under way."""
_LOOKS_MAX = 20
"""How many looks at one generation are followed by one at the next."""


def spare_what_stays() -> None:
    """Let the collector pass over what is there now, and look at the rest less often. Call it when a role is ready.

    A look at everything stops the process for a tenth of a second where a few hundred sessions are open. It becomes due
    by what outlives two looks at the young; with CPython's 700 objects most calls under way do.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG_MAX, _LOOKS_MAX, _LOOKS_MAX)


def keep_freed_buffers() -> bool:
    """Keep freed buffers for the next ones instead of giving them back to the kernel at once; whether that worked.

    By default glibc gives a buffer of a megabyte back as soon as it is free, and gets it again, page by page, for the
    next batch: 600 page faults a batch, a third of the time of a proxy. Nothing happens where the C library is another.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    mallopt(_M_ARENA_MAX, _ARENAS_MAX)
    return bool(mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES))


def give_back_freed() -> bool:
    """Give freed memory back to the kernel, from wherever in the heaps it lies; whether the C library can.

    Young garbage goes first: each call that grpc.aio served leaves some, with its headers. It takes milliseconds for
    each hundred megabytes, and threads that allocate meanwhile may have to wait. Call it in a thread: the interpreter
    goes on.
    """
    gc.collect(1)
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return False
    malloc_trim(0)
    return True


def resident_bytes() -> int:
    """The resident memory of this process; 0 where the system does not tell it cheaply."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


_STATM, _PAGE_BYTES = Path("/proc/self/statm"), os.sysconf("SC_PAGE_SIZE")
