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
"""Number of collections of one generation after which the next older generation is collected."""


def freeze_startup_objects() -> None:
    """Exclude the current objects from garbage collection, and collect less often. Call this when a role is ready.

    A full collection stops the process for a tenth of a second if a few hundred sessions are open. A full collection
    becomes due when many objects survive two young collections. With CPython's default of a young collection per 700
    objects, the objects of most calls in progress survive.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS_MAX, _COLLECTIONS_PER_GENERATION, _COLLECTIONS_PER_GENERATION)


def retain_freed_buffers() -> bool:
    """Make the C library keep freed buffers instead of returning them to the kernel; returns whether this worked.

    By default glibc returns a freed buffer of a megabyte at once, and gets it again, page by page, for the next batch.
    This costs 600 page faults per batch, a third of a proxy's time. Other C libraries than glibc are not changed.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    mallopt(_M_ARENA_MAX, _ARENAS_MAX)
    return bool(mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES))


def give_back_freed() -> bool:
    """Return freed memory from all heaps to the kernel; returns whether the C library can do this.

    Young garbage is collected first, because each call of grpc.aio leaves garbage that holds the call's headers. Call
    this in a thread. Returning memory takes milliseconds for each hundred megabytes. Other Python code continues
    meanwhile, but threads that allocate memory may have to wait.
    """
    gc.collect(1)
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return False
    malloc_trim(0)
    return True


def resident_bytes() -> int:
    """The resident memory of this process; 0 if the system has no cheap way to read it."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


_STATM, _PAGE_BYTES = Path("/proc/self/statm"), os.sysconf("SC_PAGE_SIZE")
