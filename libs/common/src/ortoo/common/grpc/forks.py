"""Refuses gRPC in a forked child of a process that has used it.

gRPC's threads are missing in such a child. A new connection there hangs or crashes, and can stop the calls of the
parent.
"""

import os

from ortoo.common.errors import Conflict

_process_with_channels: int | None = None


def mark_channel_opened() -> None:
    """Remember that this process has opened a channel."""
    global _process_with_channels
    if _process_with_channels is None:
        _process_with_channels = os.getpid()


def check_not_forked() -> None:
    """Refuse to connect in a forked child of a process that has opened a channel. Errors: Conflict."""
    if _process_with_channels not in (None, os.getpid()):
        raise used_before_fork()


def used_before_fork() -> Conflict:
    """The error for a connection in a forked child."""
    return Conflict(
        "this process was forked from one that had a connection, and gRPC's threads do not survive a fork. Connect for "
        "the first time after the fork: in gunicorn without --preload or in the post_fork hook, in Celery at "
        "worker_process_init, in multiprocessing with the method spawn"
    )
