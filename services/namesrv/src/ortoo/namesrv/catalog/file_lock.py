"""The lock that keeps a second name server away from the same database file."""

import fcntl
import os
from pathlib import Path
from typing import Self

from ortoo.common.errors import Conflict, Invalid


class FileLock:
    """A held lock; the system gives it back when the process ends, however it ends."""

    def __init__(self, descriptor: int) -> None:
        """Use `take`."""
        self._descriptor = descriptor

    @classmethod
    def take(cls, file: Path) -> Self:
        """Lock beside `file`. Errors: Conflict if somebody has it, Invalid if it cannot be made."""
        path = file.with_name(file.name + ".lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise Invalid(
                f"{path} cannot be made: {error.strerror}; give a folder that exists and that this user may write",
                field="data_dir",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise Conflict(
                f"another name server has {file}; stop it, or give this one its own data_dir "
                "(several name servers on one directory need a PostgreSQL database_url)",
                field="data_dir",
            ) from error
        return cls(descriptor)

    def release(self) -> None:
        """Give it back."""
        os.close(self._descriptor)
