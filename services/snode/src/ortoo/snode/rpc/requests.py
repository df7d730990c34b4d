"""What it means when the requests of a stream cannot be read any further."""

import grpc

from ortoo.common.errors import Internal, OrtooError, Unavailable
from ortoo.common.process.logs import get_logger

_log = get_logger("grpc")


def read_failed(failure: Exception, method: str) -> OrtooError:
    """The error with which the stream ends."""
    if isinstance(failure, OrtooError):
        return failure
    if isinstance(failure, grpc.aio.AioRpcError | grpc.aio.UsageError | grpc.aio.BaseError):
        return Unavailable(f"{method}: the client's stream broke")
    _log.error("reading a stream met a defect", method=method, exc_info=failure)
    return Internal(f"{method} met a defect ({type(failure).__name__}); the snode's log has the details")
