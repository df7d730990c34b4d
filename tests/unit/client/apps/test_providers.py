"""What handlers need is made once, by its type, and taken back in reverse order."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from ortoo.client import App, Closed, Message
from ortoo.client.apps.providers import Providers
from ortoo.common.errors import Invalid


class Pool:
    """A thing that others are made of."""


class Bank:
    """A thing that is made of another."""

    def __init__(self, pool: Pool) -> None:
        """Remember it."""
        self.pool = pool


async def test_providers_may_ask_for_each_other_in_any_order_of_declaration() -> None:
    """Each is made once; what stands behind a yield is done last in, first out."""
    said: list[str] = []
    providers = Providers()

    async def bank(pool: Pool) -> AsyncIterator[Bank]:
        yield Bank(pool)
        said.append("bank closed")

    async def pool() -> AsyncIterator[Pool]:
        said.append("pool made")
        yield Pool()
        said.append("pool closed")

    def number() -> int:
        return 7

    async def text(number: int) -> str:
        return str(number)

    for provider in (bank, pool, text, number):
        providers.add(provider)
    async with AsyncExitStack() as stack:
        made = await providers.make(stack)
        assert made[Bank].pool is made[Pool]
        assert made[str] == "7"
    assert said == ["pool made", "bank closed", "pool closed"]


async def test_what_cannot_be_made_is_named() -> None:
    """A circular dependency, a missing provider, a second provider and a missing annotation are refused."""
    providers = Providers()

    def bank(pool: Pool) -> Bank:
        return Bank(pool)

    providers.add(bank)
    with pytest.raises(Invalid, match="depends on Pool, which has no provider"):
        await providers.make(AsyncExitStack())
    with pytest.raises(Invalid, match="Bank is provided twice"):
        providers.add(bank)

    def pool(bank: Bank) -> Pool:
        return bank.pool

    providers.add(pool)
    with pytest.raises(Invalid, match="which depends on itself"):
        await providers.make(AsyncExitStack())
    with pytest.raises(Invalid, match="add the type that it provides"):
        providers.add(lambda: 1)


async def test_a_handler_says_what_its_parameters_are() -> None:
    """One that says nothing is refused where it stands, before anything runs."""
    app = App("billing")

    async def untyped(order) -> None:  # type: ignore[no-untyped-def]
        pass

    with pytest.raises(Invalid, match="has no annotation for 'order'"):
        app.consumer("orders")(untyped)


async def test_a_program_that_does_not_run_sends_nothing() -> None:
    """It is closed, and says what to enter."""
    with pytest.raises(Closed, match=r"enter `App\.running` first"):
        await App("billing").producer("orders", str).send("x", Message(b""))
