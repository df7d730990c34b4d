"""Schedules of a program: the servers send a message at each time, and one process of the program handles it."""

from dataclasses import dataclass
from datetime import timedelta

from ortoo.client.app import Client
from ortoo.common.errors import NotFound
from ortoo.common.records.message import Message


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """A schedule that every process of a program creates when it starts."""

    topic: str
    name: str
    """Also the tag and the body of its messages."""
    cron: str = ""
    timezone: str = ""
    every: timedelta | None = None
    catch_up: str = "last"

    async def create(self, mq: Client) -> None:
        """Create the schedule, or replace it if its declaration has changed. Errors: as `ScheduleAdmin.create`.

        Only an admin may create topics, so a topic is created only if it is missing.
        """
        try:
            await self._create(mq)
        except NotFound:
            await mq.admin.ensure_topic(self.topic)
            await self._create(mq)

    async def _create(self, mq: Client) -> None:
        await mq.admin.schedules.create(
            self.topic,
            self.name,
            Message(self.name.encode(), self.name),
            cron=self.cron,
            timezone=self.timezone,
            every=self.every,
            catch_up=self.catch_up,
            replace=True,
        )
