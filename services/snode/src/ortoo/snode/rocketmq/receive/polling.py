"""How long a poll may wait, and how much it may bring."""

from ortoo.snode.rocketmq.protocol.caller import Caller

BATCH_MAX = 32
WAIT_MS_MAX = 20_000
MARGIN_MS = 500
"""An empty answer must arrive before the client's deadline, or each empty poll is an error there."""
SHORT_MS = 1_000
"""With less than this left a poll looks once and answers."""


def wait_ms(caller: Caller, wanted_ms: int) -> int:
    """How long to wait for messages; a client that says nothing (0) waits as long as its deadline allows."""
    remaining_ms = WAIT_MS_MAX + MARGIN_MS if caller.remaining_s is None else int(caller.remaining_s * 1000)
    if remaining_ms < SHORT_MS:
        return 0
    return max(0, min(wanted_ms or WAIT_MS_MAX, remaining_ms - MARGIN_MS, WAIT_MS_MAX))
