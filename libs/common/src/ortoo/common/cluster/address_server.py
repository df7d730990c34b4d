"""The addresses of the name servers: given in the settings, or as a list that an address server serves over HTTP.

An address server answers a GET with `host:port;host:port`. Its operator may change the list at any time. Every process
uses the new list within a minute, without a restart.
"""

import asyncio
import urllib.request
from typing import Final

from ortoo.common.cluster.name_servers import NameServers, addresses_of
from ortoo.common.errors import Invalid, OrtooError, Unavailable
from ortoo.common.logs import log_events
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock

REFRESH_S: Final = 30.0
RETRY_S: Final = 1.0
TIMEOUT_S: Final = 3.0
BYTES_MAX: Final = 64 << 10
_log = get_logger("name servers")


def is_url(text: str) -> bool:
    """Whether the setting `text` is the URL of an address server rather than a list of name servers."""
    return text.startswith(("http://", "https://"))


def check_name_servers(text: str) -> None:
    """Raise Invalid unless `text` is a list of name servers or the URL of an address server."""
    if not is_url(text):
        addresses_of(text)


async def resolve_name_servers(text: str, *, background: Background, clock: Clock) -> NameServers:
    """The name servers that the setting `text` names, as a list or as the URL of an address server.

    With a URL, the function returns when the address server has answered; `background` then refreshes the list.
    """
    if not is_url(text):
        return NameServers(text)
    servers: NameServers | None = None
    failing = False
    while servers is None:
        try:
            servers = NameServers(await _fetch(text))
        except OrtooError as error:
            if not failing:
                _log.emit(log_events.ADDRESS_SERVER_UNAVAILABLE, reason=str(error))
            failing = True
            await clock.sleep(RETRY_S)
    found = servers

    async def refresh() -> None:
        if found.replace(await _fetch(text)):
            _log.emit(log_events.NAME_SERVER_LIST_CHANGED, name_servers=found.addresses)

    background.every("address server", REFRESH_S, refresh, clock=clock)
    return found


def update_name_servers(servers: NameServers, text: str) -> None:
    """Replace the addresses in `servers` by those in the changed setting `text`.

    If `text` is the URL of an address server, nothing changes, because a task refreshes the addresses.

    Errors: Invalid.
    """
    if not is_url(text):
        servers.replace(text)


async def _fetch(url: str) -> str:
    def get() -> str:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            text: str = answer.read(BYTES_MAX).decode("ascii").strip()
            return text

    try:
        text = await asyncio.to_thread(get)
        addresses_of(text)
    except (OSError, ValueError) as error:
        raise Unavailable(f"the address server {url} does not answer: {error}") from error
    except Invalid as error:
        raise Unavailable(
            f"the address server {url} answered without a valid list of name servers: {error.message}"
        ) from error
    return text
