"""Detects a forked child of a process that has used gRPC. The child lacks gRPC's threads."""

import os

count = 0
"""The number of forks between the first process that imported this module and this process."""
_process_with_channels: int | None = None


def mark_channel_opened() -> None:
    """Remember that this process has opened a channel."""
    global _process_with_channels
    if _process_with_channels is None:
        _process_with_channels = os.getpid()


def is_forked_after_channel() -> bool:
    """Whether an ancestor of this process had opened a channel when it forked. A new channel would hang or crash."""
    return _process_with_channels not in (None, os.getpid())


def _count() -> None:
    global count
    count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count)
