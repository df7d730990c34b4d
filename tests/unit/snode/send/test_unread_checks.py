"""Checks for a producer that does not read them."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.records.batch import Message, encode
from ortoo.snode.enodes.link import OpenHalf
from ortoo.snode.rpc.producer import CHECKS_BYTES_MAX, CHECKS_MAX, ProducerService
from ortoo.snode.rpc.streams import LongCalls
from ortoo.snode.send.transactions import CheckSender, TransactionCheckCall
from ortoo.v1 import producer_pb2 as pb


class Asking:
    """Stores the registered function."""

    def __init__(self) -> None:
        self.ask: CheckSender
        self.is_gone = False

    def add_producer(self, producer_group: str, ask: CheckSender) -> None:
        self.ask = ask

    def remove_producer(self, producer_group: str, ask: CheckSender) -> None:
        self.is_gone = ask is self.ask


@pytest.mark.parametrize(("body_bytes", "most"), [(1, CHECKS_MAX), (1 << 20, CHECKS_BYTES_MAX >> 20)])
async def test_no_more_wait_than_there_is_room_for_and_none_when_it_reads_again(body_bytes: int, most: int) -> None:
    """G13, G17: limited in number, bytes and the process's memory. Dropped checks are repeated."""
    budget, asking = MemoryBudget(512_000_000), Asking()
    service = cast(Any, ProducerService.__new__(ProducerService))
    service.long_calls, service.sending = LongCalls(budget), SimpleNamespace(transactions=asking)
    watching = service.WatchTransactionChecks(pb.WatchTransactionChecksRequest(producer_group="p"), None)
    await anext(watching)
    before = budget.used_bytes
    half = OpenHalf(1, 7, 0, 1, 5, 6, 1, False, "p")
    check = TransactionCheckCall("handle", "t", half, encode([Message(bytes(body_bytes))], now_ms=1))
    assert {asking.ask(check) for _ in range(2 * CHECKS_MAX)} == {True}
    size = len(check.batch.records)
    held = (budget.used_bytes - before) // size
    assert 0 < held <= most
    for _ in range(held):
        assert (await anext(watching)).transaction_id == "handle"
    assert budget.used_bytes - before == size, "the last one is on its way"
    asking.ask(check)
    assert (await anext(watching)).transaction_id == "handle"
    await watching.aclose()
    assert asking.is_gone
