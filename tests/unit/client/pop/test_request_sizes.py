"""The sizes of a pop consumer's requests: each has few enough receipts and messages for the server."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ortoo.client.pop.pop_calls import PopCalls
from ortoo.client.pop.popped import LEASES_PER_REQUEST_MAX, PopLease, request_chunks
from ortoo.common.groups.pop import SETTLED_OFFSETS_MAX
from ortoo.common.process.background import Background
from ortoo.v1 import pop_pb2

RECEIPTS_MAX = 1_024
"""The server's limit."""


def lease(messages: int) -> PopLease:
    """A lease of this number of messages."""
    batch: Any = SimpleNamespace(offset=lambda row: row)
    return PopLease("handle", batch, {}, range(messages), 0.0)


@pytest.mark.parametrize(
    ("sizes", "chunks"),
    [
        ([], []),
        ([0, 1], [2]),
        ([1] * 600, [LEASES_PER_REQUEST_MAX, LEASES_PER_REQUEST_MAX, 600 - 2 * LEASES_PER_REQUEST_MAX]),
        ([1_024] * 20, [16, 4]),
        ([1, SETTLED_OFFSETS_MAX, 1], [1, 1, 1]),
        ([SETTLED_OFFSETS_MAX - 1, 1, 1], [2, 1]),
    ],
)
def test_leases_are_split_by_their_number_and_by_their_messages(sizes: list[int], chunks: list[int]) -> None:
    """Each part is within both limits, and the parts together are all leases in their order."""
    leases = [lease(size) for size in sizes]
    parts = request_chunks(leases)
    assert [len(part) for part in parts] == chunks
    assert [one for part in parts for one in part] == leases


@pytest.mark.parametrize(("calls", "messages"), [(3_000, 1), (100, 1_000), (2_000, 15), (2_000, 16), (2_000, 17)])
async def test_acknowledgements_share_requests_within_both_limits(calls: int, messages: int) -> None:
    """Calls at the same time are sent together, in as many requests as their messages need."""
    sizes: list[tuple[int, int]] = []

    async def answer(stub: Any, method: str, request: pop_pb2.AckRequest) -> pop_pb2.AckResponse:
        sizes.append((len(request.receipts), sum(len(one.offsets) for one in request.receipts)))
        return pop_pb2.AckResponse()

    connection: Any = SimpleNamespace(clock=SimpleNamespace(monotonic_s=lambda: 0.0), call=answer)
    async with asyncio.timeout(60), Background("consumer") as background:
        settling = PopCalls(connection, background, retry_timeout_s=0.0)
        await asyncio.gather(*[settling.ack("e", str(number), range(messages)) for number in range(calls)])
    assert sum(offsets for _, offsets in sizes) == calls * messages
    assert max(receipts for receipts, _ in sizes) <= RECEIPTS_MAX
    assert max(offsets for _, offsets in sizes) <= SETTLED_OFFSETS_MAX
