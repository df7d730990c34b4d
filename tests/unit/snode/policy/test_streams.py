"""The permissions that an open stream has needed so far."""

from types import SimpleNamespace
from typing import Any

import pytest

from ortoo.common.errors import Overloaded
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.snode.policy import access
from ortoo.snode.policy.access import AccessControl, CallAccess
from ortoo.snode.policy.access_rules import parse_access_rules
from ortoo.snode.policy.audit import AuditLog
from ortoo.v1 import producer_pb2, topic_pb2

RULES = """
trusted_addresses = ["10.1.0.0/16"]
[[user]]
access_key = "ann"
"""
NAME_BYTES = 10_000


def batch_for(number: int) -> producer_pb2.ProduceRequest:
    """One for a topic with a long name, not checked before."""
    return producer_pb2.ProduceRequest(queue=topic_pb2.Queue(topic=f"{number}".zfill(NAME_BYTES)))


async def test_what_a_stream_names_counts_in_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may send anywhere can make up names without end. The stream is refused when memory is exhausted."""
    budget = MemoryBudget(64 << 20)
    share = budget.share("Produce")
    monkeypatch.setattr(access, "current_memory_share", lambda: share)
    directory: Any = SimpleNamespace(topic_name=str)
    audit = AuditLog("snode-0", SystemClock())
    rules = AccessControl("", None, directory, audit)  # type: ignore[arg-type]  # no call is signed
    rules.rules = parse_access_rules(RULES)
    call = CallAccess(rules, "ProducerService/Produce", "10.1.0.1:80")
    rules.add_stream(call, print)
    for number in (0, 1, 0):
        call.authorize(batch_for(number))
    assert 2 * NAME_BYTES < share.fixed_bytes < 3 * NAME_BYTES
    with pytest.raises(Overloaded):
        for number in range((64 << 20) // NAME_BYTES):
            call.authorize(batch_for(number))
