"""Converts schedules to protobuf messages for enodes and back."""

from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.grpc.messages import read, write
from ortoo.snode.cluster.wire import encode_batch
from ortoo.snode.enodes.link import StoredSchedule
from ortoo.v1 import enode_schedules_pb2 as pb


def encode_schedule(schedule: StoredSchedule) -> pb.StoredSchedule:
    """Encode a schedule with its message."""
    batch = encode_batch(schedule.batch) if schedule.batch is not None else None
    return write(pb.StoredSchedule, schedule, batch=batch)


def decode_schedule(schedule: pb.StoredSchedule) -> StoredSchedule:
    """Decode a schedule, with its message if it has one."""
    batch = batch_of(schedule.batch) if schedule.HasField("batch") else None
    return read(StoredSchedule, schedule, batch=batch, catch_up=int(schedule.catch_up))
