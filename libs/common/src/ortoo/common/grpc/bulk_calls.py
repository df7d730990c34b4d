"""The calls that carry whole batches: their large messages, and how calls are opened and served.

On the wire they follow the protos. Handlers take and return `BulkMessage` objects instead of generated ones.
`bulk_field` gives the reason.
"""

from collections.abc import Callable
from typing import Any

import grpc

from ortoo.common.grpc.bulk_field import BulkField
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.v1 import consumer_pb2, enode_pb2, producer_pb2, record_pb2, replication_pb2

PRODUCE_REQUEST = BulkField(producer_pb2.ProduceRequest, "batch", "records")
APPEND_REQUEST = BulkField(enode_pb2.AppendRequest, "batch", "records")
FETCH_BATCHES_RESPONSE = BulkField(enode_pb2.FetchBatchesResponse, "batches", "batch", "records")
PUSH_RESPONSE = BulkField(consumer_pb2.PushResponse, "delivery", "batch", "records")
FETCH_RESPONSE = BulkField(consumer_pb2.FetchResponse, "batch", "records")
MEMBER_MESSAGE = BulkField(replication_pb2.ReplicaMessage, "frames", "content", views=True)


def batch_of(
    batch: record_pb2.SealedBatch, records: bytes | None = None, *, producer_id: int | None = None
) -> SealedBatch:
    """Read a sealed batch; `records` are its bytes if they were received outside of the message.

    Each access to a bytes field of a message makes a copy. `producer_id` is an object with the number of the message.
    """
    return SealedBatch(
        batch.records if records is None else records,
        batch.records_crc32c,
        batch.count,
        batch.body_inflated_bytes,
        batch.producer_id if producer_id is None else producer_id,
        batch.first_sequence,
        batch.delayed,
    )


def envelope_of(batch: SealedBatch) -> record_pb2.SealedBatch:
    """Write a sealed batch as a message without its bytes, which are sent outside of the message."""
    return record_pb2.SealedBatch(
        records_crc32c=batch.records_crc32c,
        count=batch.count,
        body_inflated_bytes=batch.body_inflated_bytes,
        producer_id=batch.producer_id,
        first_sequence=batch.first_sequence,
        delayed=batch.delayed,
    )


class BulkCall:
    """One RPC method whose messages may have a large field.

    `request` and `response` are each a `BulkField`, or the class of a message without a large field.
    """

    def __init__(self, path: str, request: Any, response: Any, *, takes_many: bool = True) -> None:
        """With `takes_many` the requests are a stream. The responses are always a stream."""
        self.service, self.name = path.split("/")
        self._request = request
        self._response = response
        self._takes_many = takes_many

    def __call__(self, channel: grpc.aio.Channel, *request: Any) -> Any:
        """Open the call; `request` is given only if the requests are not a stream."""
        kind = channel.stream_stream if self._takes_many else channel.unary_stream
        return kind(f"/{self.service}/{self.name}", _writer(self._request), _reader(self._response))(*request)

    def handler(self, call: Callable[..., Any]) -> Any:
        """The gRPC handler that serves this call with `call`."""
        kind = grpc.stream_stream_rpc_method_handler if self._takes_many else grpc.unary_stream_rpc_method_handler
        return kind(call, _reader(self._request), _writer(self._response))


def _writer(side: Any) -> Any:
    return side.write if isinstance(side, BulkField) else side.SerializeToString


def _reader(side: Any) -> Any:
    return side.read if isinstance(side, BulkField) else side.FromString


produce = BulkCall("ortoo.v1.ProducerService/Produce", PRODUCE_REQUEST, producer_pb2.ProduceResponse)
append = BulkCall("ortoo.v1.EnodeService/Append", APPEND_REQUEST, enode_pb2.AppendResponse)
fetch_batches = BulkCall("ortoo.v1.EnodeService/FetchBatches", enode_pb2.FetchBatchesRequest, FETCH_BATCHES_RESPONSE)
push = BulkCall("ortoo.v1.ConsumerService/Push", consumer_pb2.PushRequest, PUSH_RESPONSE)
fetch = BulkCall("ortoo.v1.ConsumerService/Fetch", consumer_pb2.FetchRequest, FETCH_RESPONSE, takes_many=False)
speak = BulkCall("ortoo.v1.ReplicationService/Exchange", MEMBER_MESSAGE, replication_pb2.ExchangeResponse)
_CALLS = {call.name: call for call in (produce, append, fetch_batches, push, fetch, speak)}


def add_service(server: Any, add: Callable[[Any, Any], None], servicer: Any, *names: str) -> None:
    """Add a service to `server` by its generated function. The methods with these names become bulk calls.

    gRPC uses the first handler of a method, so the handlers of bulk calls are added before the generated ones. Handlers
    of registered methods would not depend on the order, but many versions of grpc.aio silently ignore them.
    """
    for name in names:
        known = _CALLS[name]
        handlers = {name: known.handler(getattr(servicer, name))}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(known.service, handlers),))
    add(servicer, server)
