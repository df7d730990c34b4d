"""A program that its tests check on virtual time: reminds a customer of an unpaid bill each week, four times."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from ortoo.client import App, Message, PoppedMessage

TOPIC = "reminders"
INTERVAL = timedelta(weeks=1)
REMINDERS_MAX = 4


@dataclass
class Reminder:
    """The next reminder of a bill."""

    bill: str
    number: int = 1


class Bills(Protocol):
    """The accounts of the shop."""

    async def is_paid(self, bill: str) -> bool:
        """Whether the customer has paid."""

    async def remind(self, bill: str, number: int) -> None:
        """Send a letter."""


app = App("reminders")
reminders = app.producer(TOPIC, Reminder)


@app.consumer(TOPIC, retries=(timedelta(hours=1),) * 24)
async def remind(reminder: Reminder, message: PoppedMessage, bills: Bills) -> None:
    """Send a letter unless the bill is paid, and schedule the next one."""
    if await bills.is_paid(reminder.bill):
        return
    await bills.remind(reminder.bill, reminder.number)
    if reminder.number < REMINDERS_MAX:
        due_ms = message.stored_at_ms + INTERVAL // timedelta(milliseconds=1)
        await reminders.send(Reminder(reminder.bill, reminder.number + 1), Message(b"", deliver_at_ms=due_ms))
