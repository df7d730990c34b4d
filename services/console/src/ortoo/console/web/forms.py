"""The fields of a submitted form, with a limit of its size."""

import asyncio
from urllib.parse import parse_qsl

from starlette.requests import Request

from ortoo.common.errors import Invalid

BODY_BYTES_MAX = 4 << 20
"""Maximum size of a form: a message body of a megabyte whose bytes are all escaped, and the other fields."""
FIELDS_MAX = 1_000
ARRIVAL_S = 120.0
"""Limit of the time in which a form arrives."""
DIGITS_MAX = 40
"""Maximum length of a number. Python refuses to read numbers of thousands of digits."""


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form, the last one of each name. Errors: Invalid for a form that is too large."""
    body = bytearray()
    try:
        async with asyncio.timeout(ARRIVAL_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_BYTES_MAX:
                    raise Invalid(f"more than {BODY_BYTES_MAX:,} bytes; send a shorter text", field="form")
    except TimeoutError:
        raise Invalid(f"not complete after {ARRIVAL_S:.0f} s; send it again", field="form") from None
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError as error:
        raise Invalid("not a form; expected application/x-www-form-urlencoded in UTF-8", field="form") from error
    return dict(pairs)


def whole_number(text: str, field: str, *, default: int = 0, maximum: int = 1 << 62) -> int:
    """A number from a field of a form or an address. Errors: Invalid."""
    if not text.strip():
        return default
    if not text.strip().isdecimal() or len(text) > DIGITS_MAX or int(text) > maximum:
        raise Invalid(f"{text[:40]!r}; expected a number from 0 to {maximum:,}", field=field)
    return int(text)
