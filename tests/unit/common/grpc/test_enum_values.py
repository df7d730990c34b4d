"""Enum values of other processes: unknown ones are mapped, kept or rejected."""

import pytest

from apache.rocketmq.v2.definition_pb2 import Code
from ortoo.client.admin.groups import group_info
from ortoo.common.errors import Invalid
from ortoo.common.groups.allocation import AllocationStrategy
from ortoo.common.grpc.enum_values import check_known, find_unknown, known_or, name_of
from ortoo.v1 import producer_pb2, topic_pb2


@pytest.mark.parametrize("value", [7, -1, 1 << 31, "7", None, [1], {}])
def test_an_unknown_value_becomes_the_default(value: object) -> None:
    """Any value of a message or of stored JSON is accepted, and the default may be the value itself."""
    assert known_or(AllocationStrategy, value, AllocationStrategy.AVERAGELY) is AllocationStrategy.AVERAGELY
    assert known_or(AllocationStrategy, value, value) == value


def test_a_known_value_is_the_enums() -> None:
    """The default is not used."""
    assert known_or(AllocationStrategy, 2, None) is AllocationStrategy.CIRCLE


def test_an_unknown_value_in_a_request_is_rejected_with_the_accepted_values() -> None:
    """The error contains the path of the field; known values and the unspecified one pass."""
    request = producer_pb2.ProduceRequest(flush_mode=7)  # type: ignore[arg-type]
    with pytest.raises(Invalid) as raised:
        check_known(request, "flush_mode", prefix="batch")
    assert raised.value.field == "batch.flush_mode"
    accepted = "FLUSH_MODE_UNSPECIFIED, FLUSH_MODE_SYNC, FLUSH_MODE_ASYNC"
    assert raised.value.message == f"7 is not a valid flush mode; give one of {accepted}"
    assert str(find_unknown(request, "flush_mode")).startswith("flush_mode: 7 is not")
    check_known(producer_pb2.ProduceRequest(), "flush_mode")


def test_an_unknown_number_has_a_name() -> None:
    """Texts for operators contain the number."""
    assert name_of(Code, Code.OK) == "OK"
    assert name_of(Code, 99) == "99"
    assert name_of(topic_pb2.EnodeReplicaState, 9) == "9"


def test_a_backoff_of_a_newer_server_is_shown_as_unknown() -> None:
    """The client lists groups whose back-off it cannot name."""
    group = topic_pb2.Group(name="g", retry=topic_pb2.RetryPolicy(kind=9))  # type: ignore[arg-type]
    assert group_info(group).retry == "unknown"
    assert group_info(topic_pb2.Group(name="g")).retry == "classic"
