"""AdminService: schedules of recurring messages."""

from dataclasses import dataclass

from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.grpc.enum_values import check_known
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import write
from ortoo.common.records.batch import open_batch
from ortoo.snode.cluster.wire import decode_message, encode_queue
from ortoo.snode.send import SendComponents
from ortoo.snode.send.schedules import PlacedSchedule
from ortoo.v1 import enode_schedules_pb2 as stored_pb
from ortoo.v1 import record_pb2
from ortoo.v1 import schedule_pb2 as pb
from ortoo.v1.admin_pb2_grpc import AdminServiceServicer


@dataclass(kw_only=True, eq=False)
class ScheduleAdminHandlers(AdminServiceServicer):
    """The calls for schedules."""

    sending: SendComponents

    async def CreateSchedule(self, request: pb.CreateScheduleRequest, context: Context) -> pb.CreateScheduleResponse:
        """Create or replace a schedule."""
        check_known(request, "catch_up")
        asked = stored_pb.StoredSchedule(
            name=request.name,
            cron=request.cron,
            timezone=request.timezone,
            period_ms=request.period_ms,
            catch_up=request.catch_up,
        )
        message = decode_message(request.message)
        created = await self.sending.schedules.create(request.topic, asked, message, replaces=request.replace)
        return pb.CreateScheduleResponse(schedule=_encode(created))

    async def ListSchedules(self, request: pb.ListSchedulesRequest, context: Context) -> pb.ListSchedulesResponse:
        """The schedules of a topic, or of all topics."""
        listed, unreachable = await self.sending.schedules.list_all(request.topic, request.limit)
        return pb.ListSchedulesResponse(schedules=map(_encode, listed), unreachable_enodes=unreachable)

    async def DescribeSchedule(
        self, request: pb.DescribeScheduleRequest, context: Context
    ) -> pb.DescribeScheduleResponse:
        """One schedule with its message."""
        found = await self.sending.schedules.describe(request.topic, request.name)
        answer = pb.DescribeScheduleResponse(schedule=_encode(found))
        (message,) = open_batch(batch_of(found.stored.batch))
        answer.schedule.message.CopyFrom(write(record_pb2.Message, message))
        return answer

    async def PauseSchedule(self, request: pb.PauseScheduleRequest, context: Context) -> pb.PauseScheduleResponse:
        """Pause a schedule."""
        await self.sending.schedules.change(request.topic, request.name, stored_pb.SCHEDULE_CHANGE_PAUSE)
        return pb.PauseScheduleResponse()

    async def ResumeSchedule(self, request: pb.ResumeScheduleRequest, context: Context) -> pb.ResumeScheduleResponse:
        """Resume a schedule."""
        await self.sending.schedules.change(request.topic, request.name, stored_pb.SCHEDULE_CHANGE_RESUME)
        return pb.ResumeScheduleResponse()

    async def DeleteSchedule(self, request: pb.DeleteScheduleRequest, context: Context) -> pb.DeleteScheduleResponse:
        """Delete a schedule."""
        await self.sending.schedules.change(request.topic, request.name, stored_pb.SCHEDULE_CHANGE_DELETE)
        return pb.DeleteScheduleResponse()


def _encode(one: PlacedSchedule) -> pb.Schedule:
    stored = one.stored
    return pb.Schedule(
        topic=one.queue.topic,
        name=stored.name,
        cron=stored.cron,
        timezone=stored.timezone,
        period_ms=stored.period_ms,
        catch_up=stored.catch_up,
        paused=stored.paused,
        next_ms=stored.next_ms,
        settled_ms=stored.settled_ms,
        sent_count=stored.sent_count,
        queue=encode_queue(one.queue),
    )
