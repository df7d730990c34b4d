"""Why a session ends."""

import enum


class CloseReason(enum.IntEnum):
    """The numbers are those on the wire."""

    CLIENT_LEFT = 1
    SLOW_CONSUMER = 2
    EXPIRED = 3
    SHUTDOWN = 4
    REPLACED = 5
    GROUP_CLOSED = 6
