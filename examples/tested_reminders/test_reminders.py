"""Tests of a month in seconds: each test has its own broker on virtual time.

    pip install 'ortoo[testing]' pytest-asyncio
    pytest --asyncio-mode=auto

`broker.clock.advance` lets time pass. `app.override` gives the program a test double.
"""

from typing import Any

import pytest
from reminders import TOPIC, Bills, Reminder, app, reminders

from ortoo.client import connect

pytestmark = pytest.mark.ortoo(topics=[TOPIC])


class Accounts:
    """A test double of the accounts."""

    def __init__(self) -> None:
        """No bill is paid, and the post office is open."""
        self.paid: set[str] = set()
        self.letters: list[tuple[str, int]] = []
        self.refusals = 0

    async def is_paid(self, bill: str) -> bool:
        """Whether the customer has paid."""
        return bill in self.paid

    async def remind(self, bill: str, number: int) -> None:
        """Send a letter, or refuse it."""
        if self.refusals:
            self.refusals -= 1
            raise ConnectionError("the post office is closed")
        self.letters.append((bill, number))


@pytest.fixture
def accounts() -> Accounts:
    """The accounts that the program uses."""
    accounts = Accounts()
    app.override(accounts, Bills)
    return accounts


async def test_four_letters_in_four_weeks(broker: Any, accounts: Accounts) -> None:
    """An unpaid bill gets a letter each week, and no fifth one."""
    async with connect() as mq, app.running(mq):
        await reminders.send(Reminder("b-1"))
        sent = []
        for _ in range(5):
            await broker.clock.advance("1h")
            sent.append(len(accounts.letters))
            await broker.clock.advance("7d")
    assert sent == [1, 2, 3, 4, 4]


async def test_a_paid_bill_gets_no_letter(broker: Any, accounts: Accounts) -> None:
    """A payment ends the reminders."""
    async with connect() as mq, app.running(mq):
        await reminders.send(Reminder("b-1"))
        await broker.clock.advance("3d")
        accounts.paid.add("b-1")
        await broker.clock.advance("30d")
    assert accounts.letters == [("b-1", 1)]


async def test_a_letter_waits_until_the_post_office_opens(broker: Any, accounts: Accounts) -> None:
    """A refused letter is sent again each hour, and each letter is sent once."""
    accounts.refusals = 3
    async with connect() as mq, app.running(mq):
        await reminders.send(Reminder("b-1"))
        await broker.clock.advance("2h")
        assert accounts.letters == []
        await broker.clock.advance("4h")
    assert accounts.letters == [("b-1", 1)]


async def test_a_crash_of_the_server_loses_no_reminder(broker: Any, accounts: Accounts) -> None:
    """A delayed message survives `kill -9` of the server that stores it."""
    async with connect() as mq, app.running(mq):
        await reminders.send(Reminder("b-1"))
        await broker.clock.advance("1d")
        broker.kill("enode", back_after="2h")
        await broker.clock.advance("7d")
    assert accounts.letters == [("b-1", 1), ("b-1", 2)]
