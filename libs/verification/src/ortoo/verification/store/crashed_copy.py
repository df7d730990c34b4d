"""Copies of the folder of a running store, as a killed process leaves it."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def crashed_copy(folder: Path, target: Path, copy: Callable[[str, str], object] = shutil.copy2) -> Path:
    """Copy the folder to `target`, while no thread of the store writes; returns `target`. `copy` copies a file.

    Otherwise the copy could have a file from before a write and another one from after it, as no crash leaves them.
    """
    while True:
        with suppress(FileNotFoundError, shutil.Error):  # a file was renamed
            before = _written(folder)
            shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.tmp", "*.spare"), copy_function=copy)
            if _written(folder) == before:
                return target
        shutil.rmtree(target, ignore_errors=True)


def _written(folder: Path) -> set[tuple[str, int, int, int]]:
    """Properties of the files that each write changes."""
    with os.scandir(folder) as files:
        return {(one.path, (stat := one.stat()).st_ino, stat.st_mtime_ns, stat.st_size) for one in files}
