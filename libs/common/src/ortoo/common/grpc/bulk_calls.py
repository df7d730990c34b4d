"""The calls that carry whole batches: how their large messages are written and read, how they are opened and served.

On the wire they are what the protos say. A handler gets and gives `Bulky` messages where the generated one has plain
ones; see `bulk_field` for why.
"""

from collections.abc import Callable, Mapping
from typing import Any

import grpc

from ortoo.common.grpc.bulk_field import BulkField
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.v1 import consumer_pb2, enode_pb2, members_pb2, producer_pb2, record_pb2

PRODUCE_REQUEST = BulkField(producer_pb2.ProduceRequest, "batch", "records")
APPEND_REQUEST = BulkField(enode_pb2.AppendRequest, "batch", "records")
FETCH_BATCHES_RESPONSE = BulkField(enode_pb2.FetchBatchesResponse, "batches", "batch", "records")
PUSH_RESPONSE = BulkField(consumer_pb2.PushResponse, "delivery", "batch", "records")
FETCH_RESPONSE = BulkField(consumer_pb2.FetchResponse, "batch", "records")
MEMBER_MESSAGE = BulkField(members_pb2.MemberMessage, "frames", "content", views=True)

_PRODUCE = "/ortoo.v1.ProducerService/Produce"
_APPEND = "/ortoo.v1.EnodeService/Append"
_FETCH_BATCHES = "/ortoo.v1.EnodeService/FetchBatches"
_PUSH = "/ortoo.v1.ConsumerService/Push"
_FETCH = "/ortoo.v1.ConsumerService/Fetch"
_SPEAK = "/ortoo.v1.MemberService/Speak"
Channel = grpc.aio.Channel


def batch_of(batch: record_pb2.SealedBatch, records: bytes | None = None) -> SealedBatch:
    """A sealed batch, read; `records` are its bytes if they came beside it. Each look at those inside is a copy."""
    return SealedBatch(
        batch.records if records is None else records,
        batch.records_crc32c,
        batch.count,
        batch.body_inflated_bytes,
        batch.producer_id,
        batch.first_sequence,
        batch.delayed,
    )


def produce(channel: Channel) -> Any:
    """Open ProducerService.Produce: `Bulky` requests, plain responses."""
    return channel.stream_stream(_PRODUCE, PRODUCE_REQUEST.write, producer_pb2.ProduceResponse.FromString)()


def append(channel: Channel) -> Any:
    """Open EnodeService.Append: `Bulky` requests, plain responses."""
    return channel.stream_stream(_APPEND, APPEND_REQUEST.write, enode_pb2.AppendResponse.FromString)()


def fetch_batches(channel: Channel) -> Any:
    """Open EnodeService.FetchBatches: plain requests, `Bulky` responses."""
    write = enode_pb2.FetchBatchesRequest.SerializeToString
    return channel.stream_stream(_FETCH_BATCHES, write, FETCH_BATCHES_RESPONSE.read)()


def push(channel: Channel) -> Any:
    """Open ConsumerService.Push: plain requests, `Bulky` responses."""
    return channel.stream_stream(_PUSH, consumer_pb2.PushRequest.SerializeToString, PUSH_RESPONSE.read)()


def fetch(channel: Channel, request: consumer_pb2.FetchRequest) -> Any:
    """Call ConsumerService.Fetch: a plain request, `Bulky` responses."""
    return channel.unary_stream(_FETCH, consumer_pb2.FetchRequest.SerializeToString, FETCH_RESPONSE.read)(request)


def speak(channel: Channel) -> Any:
    """Open MemberService.Speak: `Bulky` requests, plain responses."""
    return channel.stream_stream(_SPEAK, MEMBER_MESSAGE.write, members_pb2.SpeakResponse.FromString)()


def serve(server: Any, calls: Mapping[str, Callable[..., Any]]) -> None:
    """Let `server` answer these of the six calls, by method name, after it was given their whole services."""
    streams, answers = grpc.stream_stream_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    codecs: dict[str, tuple[str, Any, Any, Any]] = {
        "Produce": (_PRODUCE, streams, PRODUCE_REQUEST.read, producer_pb2.ProduceResponse.SerializeToString),
        "Append": (_APPEND, streams, APPEND_REQUEST.read, enode_pb2.AppendResponse.SerializeToString),
        "FetchBatches": (
            _FETCH_BATCHES, streams, enode_pb2.FetchBatchesRequest.FromString, FETCH_BATCHES_RESPONSE.write
        ),
        "Push": (_PUSH, streams, consumer_pb2.PushRequest.FromString, PUSH_RESPONSE.write),
        "Speak": (_SPEAK, streams, MEMBER_MESSAGE.read, members_pb2.SpeakResponse.SerializeToString),
        "Fetch": (_FETCH, answers, consumer_pb2.FetchRequest.FromString, FETCH_RESPONSE.write),
    }  # fmt: skip
    for name, call in calls.items():
        path, kind, read, write = codecs[name]
        server.add_registered_method_handlers(path.split("/")[1], {name: kind(call, read, write)})
