"""RPCs of schedules."""

from ortoo.common.cluster.names import check_schedule_name
from ortoo.common.errors import Invalid
from ortoo.common.grpc.enum_values import known_or
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import write
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.common.records.view import RecordBatchView
from ortoo.enode.changes.schedules import CatchUp, SchedulePut
from ortoo.enode.rpc.handlers import EnodeHandlers, limit_of, read_checked_batch, without_sequence
from ortoo.v1 import enode_schedules_pb2 as pb


class ScheduleHandlers(EnodeHandlers):
    """The methods for schedules of recurring messages."""

    async def StoreSchedule(self, request: pb.StoreScheduleRequest, context: Context) -> pb.StoreScheduleResponse:
        """Create or replace a schedule."""
        asked = request.schedule
        await self.topics.wait_for(asked.topic_id, asked.queue_id)
        stored = await self.schedules.create(_read_schedule(asked), replaces=request.replace)
        return pb.StoreScheduleResponse(schedule=self._write_schedule(stored))

    async def ListStoredSchedules(
        self, request: pb.ListStoredSchedulesRequest, context: Context
    ) -> pb.ListStoredSchedulesResponse:
        """List schedules."""
        if request.topic_id:
            await self.topics.wait_for(request.topic_id)
        listed = self.schedules.select(topic_id=request.topic_id, name=request.name, limit=limit_of(request))
        return pb.ListStoredSchedulesResponse(
            schedules=[self._write_schedule(one, with_message=request.with_messages) for one in listed]
        )

    async def ChangeStoredSchedule(
        self, request: pb.ChangeStoredScheduleRequest, context: Context
    ) -> pb.ChangeStoredScheduleResponse:
        """Suspend, resume or delete a schedule."""
        await self.topics.wait_for(request.topic_id)
        if request.change == pb.SCHEDULE_CHANGE_DELETE:
            await self.schedules.delete(request.topic_id, request.name)
        elif request.change in (pb.SCHEDULE_CHANGE_SUSPEND, pb.SCHEDULE_CHANGE_RESUME):
            suspended = request.change == pb.SCHEDULE_CHANGE_SUSPEND
            await self.schedules.suspend(request.topic_id, request.name, suspended=suspended)
        else:
            raise Invalid("a schedule can be suspended, resumed or deleted", field="change")
        return pb.ChangeStoredScheduleResponse()

    def _write_schedule(self, one: SchedulePut, *, with_message: bool = False) -> pb.StoredSchedule:
        batch = without_sequence(_sealed(one.records)) if with_message else None
        return write(pb.StoredSchedule, one, next_ms=self.schedules.next_ms(one), batch=batch)


def _read_schedule(asked: pb.StoredSchedule) -> SchedulePut:
    """The requested schedule without its state. Errors: Invalid."""
    check_schedule_name(asked.name)
    batch = read_checked_batch(asked)
    if batch.count != 1 or batch.delayed:
        raise Invalid("a schedule sends one message at a time, which is not delayed", field="message")
    catch_up = known_or(CatchUp, asked.catch_up or CatchUp.LAST, None)
    if catch_up is None:
        raise Invalid(f"{asked.catch_up} is no policy that this enode knows; upgrade it", field="catch_up")
    return SchedulePut(
        topic_id=asked.topic_id,
        queue_id=asked.queue_id,
        started_at_ms=0,
        settled_ms=0,
        sent_count=0,
        period_ms=asked.period_ms,
        catch_up=catch_up,
        suspended=False,
        records=bytes(batch.records),
        name=asked.name,
        cron=" ".join(asked.cron.split()),
        timezone=asked.timezone,
    )


def _sealed(records: bytes) -> SealedBatch:
    return SealedBatch(records, crc32c(records), 1, RecordBatchView(records).body_inflated_bytes)
