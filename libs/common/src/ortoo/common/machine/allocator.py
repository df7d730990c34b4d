"""Tuning of memory: the C library's buffers, Python's garbage collector, and the return of freed memory."""

import ctypes
import gc
import os
from pathlib import Path

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_MMAP_BYTES = 32 << 20
"""The largest value that glibc accepts; buffers below it come from the heap."""
_M_ARENA_MAX = -8
_ARENAS_MAX = 2
"""Number of heaps that threads share. By default glibc makes eight per core, and each keeps freed memory."""
_TRIM_BYTES = 32 << 20
"""Size of the freed memory at the end of a heap that is kept for the next buffers."""
_YOUNG_OBJECTS_MAX = 5_000
"""Number of new objects that start a garbage collection: several times the objects of the calls in progress."""
_COLLECTIONS_PER_GENERATION = 20
"""Number of collections of one generation that are followed by one of the next."""


def freeze_startup_objects() -> None:
    """Freeze the current objects, and collect garbage among others less often. Call it when a role is ready.

    A full collection stops the process for a tenth of a second where a few hundred sessions are open. Objects that
    survive two young collections make it due. With CPython's 700 objects most calls in progress survive them.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS_MAX, _COLLECTIONS_PER_GENERATION, _COLLECTIONS_PER_GENERATION)


def retain_freed_buffers() -> bool:
    """Keep freed buffers for later ones, instead of returning them to the kernel at once; returns whether it worked.

    By default glibc returns a freed buffer of a megabyte at once, and gets it again, page by page, for the next batch.
    That is 600 page faults per batch, a third of a proxy's time. Other C libraries are not changed.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    mallopt(_M_ARENA_MAX, _ARENAS_MAX)
    return bool(mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES))


def give_back_freed() -> bool:
    """Return freed memory from all heaps to the kernel; returns whether the C library can do this.

    Young garbage is collected first, because each call of grpc.aio leaves some, with its headers. It takes milliseconds
    for each hundred megabytes, and threads that allocate meanwhile may have to wait. Call it in a thread, so that the
    interpreter continues.
    """
    gc.collect(1)
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return False
    malloc_trim(0)
    return True


def resident_bytes() -> int:
    """The resident memory of this process; 0 where the system does not report it cheaply."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


_STATM, _PAGE_BYTES = Path("/proc/self/statm"), os.sysconf("SC_PAGE_SIZE")
