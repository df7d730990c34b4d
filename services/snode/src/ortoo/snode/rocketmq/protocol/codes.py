"""The tables that map Ortoo's errors to RocketMQ's result codes."""

from functools import cache

from apache.rocketmq.v2.definition_pb2 import Code, Status
from ortoo.common import errors
from ortoo.common.errors.status import count_failure, kind_of, told
from ortoo.common.errors.status import status_of as errors_status_of
from ortoo.common.grpc.enum_values import name_of

BY_FIELD: tuple[tuple[type[errors.OrtooError], str, Code.ValueType], ...] = (
    (errors.Invalid, "topic", Code.ILLEGAL_TOPIC),
    (errors.Invalid, "group", Code.ILLEGAL_CONSUMER_GROUP),
    (errors.Invalid, "tag", Code.ILLEGAL_MESSAGE_TAG),
    (errors.Invalid, "keys", Code.ILLEGAL_MESSAGE_KEY),
    (errors.Invalid, "message_group", Code.ILLEGAL_MESSAGE_GROUP),
    (errors.Invalid, "message_id", Code.ILLEGAL_MESSAGE_ID),
    (errors.Invalid, "properties", Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    (errors.Invalid, "deliver_at_ms", Code.ILLEGAL_DELIVERY_TIME),
    (errors.Invalid, "filter", Code.ILLEGAL_FILTER_EXPRESSION),
    (errors.Invalid, "sql_expression", Code.ILLEGAL_FILTER_EXPRESSION),
    (errors.Invalid, "tag_expression", Code.ILLEGAL_FILTER_EXPRESSION),
    (errors.Invalid, "invisible_duration", Code.ILLEGAL_INVISIBLE_TIME),
    (errors.Invalid, "receipt_handle", Code.INVALID_RECEIPT_HANDLE),
    (errors.Invalid, "transaction_id", Code.INVALID_TRANSACTION_ID),
    (errors.NotFound, "topic", Code.TOPIC_NOT_FOUND),
    (errors.NotFound, "group", Code.CONSUMER_GROUP_NOT_FOUND),
    (errors.NotFound, "receipt_handle", Code.INVALID_RECEIPT_HANDLE),
    (errors.NotFound, "transaction_id", Code.INVALID_TRANSACTION_ID),
    (errors.Conflict, "receipt_handle", Code.INVALID_RECEIPT_HANDLE),
    (errors.Fenced, "receipt_handle", Code.INVALID_RECEIPT_HANDLE),
    (errors.Forbidden, "authorization", Code.UNAUTHORIZED),
    (errors.Conflict, "transaction_id", Code.INVALID_TRANSACTION_ID),
)
"""Codes of errors about one field. Fields are compared by their last part: `messages[3].keys[1]` is `keys`."""

BY_KIND: tuple[tuple[type[errors.OrtooError], Code.ValueType], ...] = (
    (errors.Invalid, Code.BAD_REQUEST),
    (errors.NotFound, Code.NOT_FOUND),
    (errors.AlreadyExists, Code.PRECONDITION_FAILED),
    (errors.Conflict, Code.PRECONDITION_FAILED),
    (errors.Fenced, Code.PRECONDITION_FAILED),
    (errors.Overloaded, Code.TOO_MANY_REQUESTS),
    (errors.Unavailable, Code.PROXY_TIMEOUT),
    (errors.OutOfRange, Code.ILLEGAL_OFFSET),
    (errors.DataLoss, Code.INTERNAL_SERVER_ERROR),
    (errors.Forbidden, Code.FORBIDDEN),
    (errors.Unsupported, Code.NOT_IMPLEMENTED),
    (errors.Internal, Code.INTERNAL_SERVER_ERROR),
)
"""Codes of all other errors, by kind."""

_BY_FIELD = {(kind, field): code for kind, field, code in BY_FIELD}
_BY_KIND = dict(BY_KIND)
_KIND_BY_CODE = {code: kind for kind, code in BY_KIND}


class GrpcProxyError(Exception):
    """An error with a code of RocketMQ's protocol."""

    def __init__(self, code: Code.ValueType, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@cache
def ok_status() -> Status:
    """The status of a successful call. It must be set, because clients treat a missing status as a failure."""
    return Status(code=Code.OK, message=name_of(Code, Code.OK))


def code_of(error: errors.OrtooError) -> Code.ValueType:
    """The code of RocketMQ's protocol for `error`."""
    kind, parts = kind_of(error), error.field.split(".")
    for part in reversed(parts):
        code = _BY_FIELD.get((kind, part.partition("[")[0]))
        if code is not None:
            return code
    return _BY_KIND[kind]


def status_of(error: errors.OrtooError | GrpcProxyError) -> Status:
    """The status of a failed call."""
    if not isinstance(error, GrpcProxyError):
        count_failure(error)
    code = error.code if isinstance(error, GrpcProxyError) else code_of(error)
    return Status(code=code, message=told(f"{name_of(Code, code)}: {error}"))


def grpc_status_name(error: errors.OrtooError | GrpcProxyError) -> str:
    """The name of the gRPC status with which other protocols report `error`, for metrics."""
    if isinstance(error, GrpcProxyError):
        kind = _KIND_BY_CODE.get(error.code, errors.Invalid)
        return errors_status_of(kind()).name
    return errors_status_of(error).name


def common_status(codes: list[Code.ValueType]) -> Status:
    """The status of an answer with several entries: the code of all entries, or MULTIPLE_RESULTS if they differ."""
    if not codes:
        return status_of(GrpcProxyError(Code.INTERNAL_SERVER_ERROR, "there is no result"))
    if len(set(codes)) > 1:
        return status_of(GrpcProxyError(Code.MULTIPLE_RESULTS, "the results differ; each entry has its own status"))
    return _plain_status(codes[0])


@cache
def _plain_status(code: Code.ValueType) -> Status:
    return Status(code=code, message=name_of(Code, code))
