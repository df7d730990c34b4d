"""Detects a forked child of a process that has used gRPC. The child lacks gRPC's threads."""

import os

_process_with_channels: int | None = None


def mark_channel_opened() -> None:
    """Remember that this process has opened a channel."""
    global _process_with_channels
    if _process_with_channels is None:
        _process_with_channels = os.getpid()


def is_forked_after_channel() -> bool:
    """Whether an ancestor of this process had opened a channel when it forked. A new channel would hang or crash."""
    return _process_with_channels not in (None, os.getpid())
