"""SendBack."""

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid
from ortoo.snode.cluster.wire import queue_of
from ortoo.snode.pop.dead_letters import PARK_LEVEL, SendingBack, SentBack
from ortoo.v1 import pull_pb2

OFFSETS_MAX = 1_024
ATTEMPTS_MAX = 1_000


async def send_back(sending: SendingBack, request: pull_pb2.SendBackRequest) -> pull_pb2.SendBackResponse:
    """Give messages back that could not be processed."""
    check_group_name(request.group)
    if not 1 <= len(request.offsets) <= OFFSETS_MAX or min(request.offsets) < 0:
        raise Invalid(f"{len(request.offsets)} offsets; give 1 to {OFFSETS_MAX}, each 0 or more", field="offsets")
    if request.delay_level < PARK_LEVEL:
        raise Invalid(f"{request.delay_level}; give -1 to park, 0 or a level from 1 to 18", field="delay_level")
    if request.attempts_max > ATTEMPTS_MAX:
        raise Invalid(f"{request.attempts_max}; give at most {ATTEMPTS_MAX}", field="attempts_max")
    sent = SentBack(
        request.group, queue_of(request.queue), list(request.offsets), request.delay_level, request.attempts_max
    )
    return pull_pb2.SendBackResponse(message_ids=await sending.send_back(sent))
