"""Calls of which each may fail, so that a page shows what answered and names what did not."""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ortoo.common.errors import Forbidden, NotFound, OrtooError

T = TypeVar("T")
AUTHORIZATION = "authorization"
"""The field of a refusal because of a missing or wrong signature."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The value of a call, or the reason why there is none."""

    value: T | None = None
    error: str = ""
    is_not_found: bool = False


async def ask(call: Awaitable[T]) -> Answer[T]:
    """The answer of `call`. Errors: Forbidden when the caller has to sign in."""
    try:
        return Answer(await call)
    except Forbidden as error:
        if error.field == AUTHORIZATION:
            raise
        return Answer(error=error.message)
    except NotFound as error:
        return Answer(error=error.message, is_not_found=True)
    except OrtooError as error:
        return Answer(error=str(error))
