"""The name servers that a process may use, and the one that it uses now."""

import asyncio

from ortoo.common.cluster.addresses import is_address
from ortoo.common.errors import Invalid


class NameServers:
    """The addresses of name servers that share one database. A name server that fails is skipped."""

    def __init__(self, addresses: str) -> None:
        """Take `host:port`, several separated by `;`. Errors: Invalid."""
        self.addresses = addresses_of(addresses)
        """All name servers of the list."""
        self.current = self.addresses[0]
        """The name server in use."""
        self.changed = asyncio.Event()
        """Set when the list changes; a new event then stands for the next change."""

    def next_after(self, failed: str) -> None:
        """Switch to the next name server after `failed`, unless another task has already switched."""
        if failed == self.current:
            place = self.addresses.index(failed) if failed in self.addresses else -1
            self.current = self.addresses[(place + 1) % len(self.addresses)]

    def replace(self, addresses: str) -> bool:
        """Use another list from now on, and return whether it differs from the previous list.

        The current name server stays in use if the new list has it.

        Errors: Invalid, and the list stays unchanged.
        """
        found = addresses_of(addresses)
        changed = found != self.addresses
        self.addresses = found
        if self.current not in found:
            self.current = found[0]
        if changed:
            before, self.changed = self.changed, asyncio.Event()
            before.set()
        return changed


def addresses_of(text: str) -> tuple[str, ...]:
    """Split `host:port;host:port`; repeated addresses are left out. Errors: Invalid, naming `namesrv_address`."""
    addresses = tuple(dict.fromkeys(part.strip() for part in text.split(";") if part.strip()))
    if not addresses:
        raise Invalid("no name server; give host:port, several separated by ;", field="namesrv_address")
    for address in addresses:
        if not is_address(address):
            raise Invalid(f"{address!r}; expected host:port, several separated by ;", field="namesrv_address")
    return addresses
