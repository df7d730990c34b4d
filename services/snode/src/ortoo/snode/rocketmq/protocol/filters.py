"""Filter expressions of the protocol."""

from apache.rocketmq.v2.definition_pb2 import Code, FilterExpression, FilterType
from ortoo.common.filters import message_filter
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError


def compile_filter(expression: FilterExpression) -> MessageFilter | None:
    """The filter of a subscription; None = all messages. An unset type means tags. Errors: GrpcProxyError, Invalid."""
    match expression.type:
        case FilterType.FILTER_TYPE_UNSPECIFIED | FilterType.TAG:
            return message_filter.compile_filter(expression.expression, "")
        case FilterType.SQL:
            if not expression.expression.strip():
                raise GrpcProxyError(
                    Code.ILLEGAL_FILTER_EXPRESSION, "the SQL expression is empty; use TAG with '*' for all"
                )
            return message_filter.compile_filter("", expression.expression)
        case unknown:
            raise GrpcProxyError(Code.ILLEGAL_FILTER_EXPRESSION, f"filter type {unknown} is unknown; use TAG or SQL")
