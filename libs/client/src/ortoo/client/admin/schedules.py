"""The operator's calls about schedules of recurring messages. All go through AdminService, so grpcurl can call them."""

from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from ortoo.client.core.connection import Connection
from ortoo.client.core.queues import Queue
from ortoo.client.core.wire import EnumNames
from ortoo.common.errors import Invalid
from ortoo.common.grpc.messages import read, write
from ortoo.common.records.message import Message, message_of
from ortoo.v1 import record_pb2, schedule_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub

_CATCH_UPS = EnumNames("catch_up", schedule_pb2.CatchUp)


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule, which sends a message at each of its times. Times are milliseconds since 1970-01-01 UTC."""

    topic: str
    name: str
    cron: str
    """Five fields; empty = the rule is a period."""
    timezone: str
    """The time zone of `cron`; empty = UTC."""
    period_ms: int
    """The time from message to message; 0 = the rule is `cron`."""
    catch_up: str
    """The treatment of late occurrences: last (the newest is sent), skip (none) or all (at most 1,000)."""
    suspended: bool
    next_ms: int
    """The time of the next message; 0 = none, for example because it is suspended."""
    settled_ms: int
    """Every occurrence up to this time was sent or left out."""
    sent_count: int
    queue: Queue
    """The queue of its messages."""
    message: Message | None = None
    """Only in the result of `describe`."""


@dataclass(frozen=True, slots=True)
class ListedSchedules:
    """Schedules, and the enodes that could not be reached, whose schedules are missing."""

    schedules: tuple[ScheduleInfo, ...]
    unreachable_enodes: tuple[str, ...] = ()


class ScheduleAdmin:
    """The operator's calls about schedules. Available as `Client.admin.schedules`."""

    def __init__(self, connection: Connection) -> None:
        """Applications use `Client.admin.schedules`."""
        self._call = partial(connection.call, AdminServiceStub)

    async def create(
        self,
        topic: str,
        name: str,
        message: Message | bytes,
        *,
        cron: str = "",
        timezone: str = "",
        every: timedelta | None = None,
        catch_up: str = "last",
        replace: bool = False,
    ) -> ScheduleInfo:
        """Send `message` to `topic` at each time of `cron` in `timezone`, or each time the period `every` has passed.

        `name` is unique in the topic. Late occurrences, such as those during an outage, follow `catch_up`: last, skip
        or all. Repeating the call has no effect. With `replace`, another definition replaces the existing one, and a
        schedule whose rule stays the same continues.
        Errors: Invalid, AlreadyExists (another definition), NotFound (the topic), Conflict (too many schedules).
        """
        sent = message_of(message)
        sent.check()
        request = schedule_pb2.CreateScheduleRequest(
            topic=topic,
            name=name,
            cron=cron,
            timezone=timezone,
            period_ms=_milliseconds(every),
            catch_up=_CATCH_UPS.number(catch_up),
            message=write(record_pb2.Message, sent),
            replace=replace,
        )
        return _schedule_info((await self._call("CreateSchedule", request)).schedule)

    async def list(self, topic: str = "", *, limit: int = 100) -> ListedSchedules:
        """The schedules of a topic, by name; an empty `topic` matches all topics."""
        answer = await self._call("ListSchedules", schedule_pb2.ListSchedulesRequest(topic=topic, limit=limit))
        return ListedSchedules(tuple(map(_schedule_info, answer.schedules)), tuple(answer.unreachable_enodes))

    async def describe(self, topic: str, name: str) -> ScheduleInfo:
        """A schedule with its message. Errors: NotFound."""
        request = schedule_pb2.DescribeScheduleRequest(topic=topic, name=name)
        return _schedule_info((await self._call("DescribeSchedule", request)).schedule)

    async def suspend(self, topic: str, name: str) -> None:
        """Send nothing until the schedule is resumed. Errors: NotFound."""
        await self._call("SuspendSchedule", schedule_pb2.SuspendScheduleRequest(topic=topic, name=name))

    async def resume(self, topic: str, name: str) -> None:
        """Send again, from now on; the occurrences of the suspension are never sent. Errors: NotFound."""
        await self._call("ResumeSchedule", schedule_pb2.ResumeScheduleRequest(topic=topic, name=name))

    async def delete(self, topic: str, name: str) -> None:
        """Delete a schedule; when this returns, it sends nothing more. Errors: NotFound."""
        await self._call("DeleteSchedule", schedule_pb2.DeleteScheduleRequest(topic=topic, name=name))


def _milliseconds(every: timedelta | None) -> int:
    if every is None:
        return 0
    if every <= timedelta(0):
        raise Invalid(f"{every}; expected a period of at least 1 s", field="every")
    return max(1, every // timedelta(milliseconds=1))


def _schedule_info(one: schedule_pb2.Schedule) -> ScheduleInfo:
    return read(ScheduleInfo, one, catch_up=_CATCH_UPS.name(one.catch_up))
