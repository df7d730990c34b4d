"""Filter expressions of the protocol."""

from apache.rocketmq.v2.definition_pb2 import Code, FilterExpression, FilterType
from ortoo.snode.rocketmq.codes import Refused
from ortoo.snode.tag_filter import TagFilter


def compile_filter(expression: FilterExpression) -> TagFilter:
    """What a subscription wants; no type means tags. Errors: Refused with ILLEGAL_FILTER_EXPRESSION; Invalid."""
    if expression.type in (FilterType.FILTER_TYPE_UNSPECIFIED, FilterType.TAG):
        return TagFilter.compile(expression.expression)
    raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, f"filter type {expression.type} is unknown; use TAG")
