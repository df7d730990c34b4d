"""Dependencies of handlers are made once, found by type, and closed in reverse order."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from ortoo.client import App, ClientClosed, Message
from ortoo.client.apps.providers import Providers
from ortoo.common.errors import Invalid


class Pool:
    """A dependency of others."""


class Bank:
    """A dependency that depends on another."""

    def __init__(self, pool: Pool) -> None:
        """Store the argument."""
        self.pool = pool


async def test_providers_may_ask_for_each_other_in_any_order_of_declaration() -> None:
    """Each is made once; code after a yield runs last in, first out."""
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
    """A parameter without a type is refused when the handler is declared."""
    app = App("billing")

    async def untyped(order) -> None:  # type: ignore[no-untyped-def]
        pass

    with pytest.raises(Invalid, match="has no annotation for 'order'"):
        app.consumer("orders")(untyped)


async def test_a_program_that_does_not_run_sends_nothing() -> None:
    """It is closed, and the error says which method to enter."""
    with pytest.raises(ClientClosed, match=r"enter `App\.running` first"):
        await App("billing").producer("orders", str).send("x", Message(b""))
