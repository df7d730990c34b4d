"""A request and its reply by grpcurl alone: no client library is needed."""

import asyncio
from pathlib import Path
from typing import Any

from ortoo.client import connect
from ortoo.common.process.background import Background
from ortoo.verification.servers import grpcurl
from ortoo.verification.servers.cluster import open_cluster

REPLY = "ortoo.v1.ReplyService/Reply"


async def test_a_request_is_answered_by_grpcurl(tmp_path: Path) -> None:
    """The replier needs the properties of the request. A repeated reply and a wrong address have clear answers."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(120):
        await cluster.create_topic("t")
        async with mq.producer("t") as producer, mq.pop_consumer("g", "t") as consumer, Background("ask") as background:
            asked = background.spawn("ask", producer.request(b"?", timeout_s=50))
            while not (popped := await consumer.pop(wait_ms=1_000)):
                pass
            properties = popped[0].properties
            request: dict[str, Any] = {
                "topic": "t",
                "correlation_id": properties["CORRELATION_ID"],
                "reply_to": properties["REPLY_TO_CLIENT"],
                "message": {"body": "aGVsbG8="},
            }
            for _ in range(2):
                answer = await grpcurl.call(cluster.address, REPLY, request)
                assert (answer.exit_code, answer.values()) == (0, [{}]), answer.stderr
            assert (await asked).body == b"hello"
            late = await grpcurl.call(cluster.address, REPLY, request | {"correlation_id": "0" * 32})
            assert late.values() == [{"late": True}]
            gone = await grpcurl.call(cluster.address, REPLY, request | {"reply_to": "nobody@" + "0" * 32})
            assert "not connected" in gone.stderr
            wrong = await grpcurl.call(cluster.address, REPLY, request | {"reply_to": "nobody"})
            assert "REPLY_TO_CLIENT" in wrong.stderr


async def test_a_request_is_sent_by_grpcurl(tmp_path: Path) -> None:
    """Publish writes the properties of the request, and refuses malformed ones."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(120):
        await cluster.create_topic("t")
        options: dict[str, Any] = {"correlation_id": "a" * 32, "reply_to": "me@" + "b" * 32, "timeout_ms": 5_000}
        message = {"body": "aGVsbG8="}
        sent = {"topic": "t", "messages": [message], "requests": [options]}
        method = "ortoo.v1.ProducerService/Publish"
        assert (await grpcurl.call(cluster.address, method, sent)).exit_code == 0
        async with mq.pop_consumer("g", "t") as consumer:
            while not (popped := await consumer.pop(wait_ms=1_000)):
                pass
            assert popped[0].request is not None
            assert popped[0].request.timeout_ms == 5_000
        for wrong, field in (
            ({"requests": [options | {"timeout_ms": 0}]}, "requests[0].timeout_ms"),
            ({"requests": [options | {"correlation_id": "1"}]}, "requests[0].correlation_id"),
            ({"requests": [options | {"reply_to": "me"}]}, "requests[0].reply_to"),
            ({"messages": [message, message]}, "requests: 1 for 2 messages"),
            ({"messages": [message | {"properties": {"TTL": "1"}}]}, "TTL"),
        ):
            refused = await grpcurl.call(cluster.address, method, sent | wrong)
            assert field in refused.stderr
