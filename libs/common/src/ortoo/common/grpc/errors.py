"""Translates handlers' exceptions into the errors that callers get."""

from typing import Any

import grpc
from google.protobuf.message import DecodeError

from ortoo.common.errors import Invalid, OrtooError, Unavailable, Unsupported
from ortoo.common.process.containment import as_ortoo_error, record_contained

Context = grpc.aio.ServicerContext[Any, Any]


def translate_error(error: Exception, method: str) -> OrtooError:
    """The error that a caller of `method` gets: Invalid for bytes that are no request, Internal for a defect.

    Invalid and Internal errors are logged. A broken stream gives Unavailable.
    """
    if isinstance(error, NotImplementedError):
        return Unsupported(f"{method} is not implemented by this server; upgrade it, or call another role")
    if isinstance(error, DecodeError):
        malformed = Invalid(
            f"the bytes are not a request of {method} ({error}); build them from the proto of this version"
        )
        record_contained(method, malformed)
        return malformed
    if isinstance(error, grpc.aio.AioRpcError | grpc.aio.UsageError | grpc.aio.BaseError):
        return Unavailable(f"{method}: the client's stream broke")
    return as_ortoo_error(error, method)
