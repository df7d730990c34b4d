"""A broken read continues at its offset, in the same topic."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ortoo.client import NotFound, Queue, Unavailable
from ortoo.client.read import fetch
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.v1 import consumer_pb2

QUEUE = Queue("t", "e", 0)


class Server:
    """Answers each attempt of a read from one topic, and breaks the stream."""

    address = "a"

    def __init__(self, *topic_ids: int) -> None:
        """The topic id of the answers to each attempt."""
        self.topic_ids = list(topic_ids)
        self.asked: list[int] = []

    async def batches(self, connection: Any, request: consumer_pb2.FetchRequest) -> AsyncIterator[BulkMessage]:
        """One answer without messages, of ten offsets."""
        self.asked.append(request.from_offset)
        topic_id = self.topic_ids.pop(0)
        answer = consumer_pb2.FetchResponse(topic_id=topic_id, next_offset=request.from_offset + 10)
        yield BulkMessage(answer, (b"",))
        raise Unavailable("broken")

    def mark_failed(self, address: str) -> None:
        """Do nothing."""

    async def back_off(self, breaks: int) -> None:
        """Do not wait."""


@pytest.mark.parametrize("topic_ids", [(1, 1, 2), (1, 2)])
async def test_a_read_that_goes_on_does_so_in_the_same_topic(
    topic_ids: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """G3: an offset of a deleted topic does not apply to a new topic with its name."""
    server = Server(*topic_ids)
    monkeypatch.setattr(fetch, "_batches", server.batches)
    connection: Any = server
    with pytest.raises(NotFound, match="deleted and created again"):
        async for _ in fetch.fetch(connection, QUEUE, 5, follow=True):
            pass
    assert server.asked == [5 + 10 * number for number in range(len(topic_ids))]
