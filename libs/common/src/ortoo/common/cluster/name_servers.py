"""The name servers that a process may use, and which of them it uses now."""

import asyncio

from ortoo.common.cluster.addresses import is_address
from ortoo.common.errors import Invalid


class NameServers:
    """Equal name servers over one database; a failed one is passed over."""

    def __init__(self, addresses: str) -> None:
        """Take `host:port`, several separated by `;`. Errors: Invalid."""
        self._addresses = addresses_of(addresses)
        self._current = self._addresses[0]
        self.changed = asyncio.Event()
        """Set when the list differs from what it is now; a new event then stands for the next change."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """All of them."""
        return self._addresses

    @property
    def current(self) -> str:
        """The one to ask."""
        return self._current

    def next_after(self, failed: str) -> None:
        """Ask another one from now on, if there is one and nobody has changed it already."""
        if failed == self._current:
            place = self._addresses.index(failed) if failed in self._addresses else -1
            self._current = self._addresses[(place + 1) % len(self._addresses)]

    def replace(self, addresses: str) -> bool:
        """Use another list from now on; whether it differs. One that is asked now and stays in the list goes on.

        Errors: Invalid; the old list stays then.
        """
        found = addresses_of(addresses)
        changed = found != self._addresses
        self._addresses = found
        if self._current not in found:
            self._current = found[0]
        if changed:
            before, self.changed = self.changed, asyncio.Event()
            before.set()
        return changed


def addresses_of(text: str) -> tuple[str, ...]:
    """Split `host:port;host:port`, each one once. Errors: Invalid, naming `namesrv_address`."""
    addresses = tuple(dict.fromkeys(part.strip() for part in text.split(";") if part.strip()))
    if not addresses:
        raise Invalid("no name server; give host:port, several separated by ;", field="namesrv_address")
    for address in addresses:
        if not is_address(address):
            raise Invalid(f"{address!r}; expected host:port, several separated by ;", field="namesrv_address")
    return addresses
