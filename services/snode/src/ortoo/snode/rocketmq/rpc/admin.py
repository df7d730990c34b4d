"""apache.rocketmq.v2.Admin."""

from typing import Any

import grpc

from apache.rocketmq.v2 import admin_pb2, admin_pb2_grpc
from apache.rocketmq.v2.admin_pb2 import ChangeLogLevelRequest, ChangeLogLevelResponse
from ortoo.common.errors import Invalid
from ortoo.common.process import logs

NAME = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name
LEVELS = {
    ChangeLogLevelRequest.TRACE: "debug",
    ChangeLogLevelRequest.DEBUG: "debug",
    ChangeLogLevelRequest.INFO: "info",
    ChangeLogLevelRequest.WARN: "warning",
    ChangeLogLevelRequest.ERROR: "error",
}
Context = grpc.aio.ServicerContext[Any, Any]


class RocketmqAdmin(admin_pb2_grpc.AdminServicer):
    """What RocketMQ's console calls."""

    async def ChangeLogLevel(self, request: ChangeLogLevelRequest, context: Context) -> ChangeLogLevelResponse:
        """Change how much this process logs."""
        level = LEVELS.get(request.level)
        if level is None:
            raise Invalid(f"{request.level} is no level; give TRACE, DEBUG, INFO, WARN or ERROR", field="level")
        logs.configure(level=level)
        return ChangeLogLevelResponse(remark=f"this snode logs {level} and above until it is started again")
