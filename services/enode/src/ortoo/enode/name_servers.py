"""The name servers that this process may use, and which of them it uses now."""

from ortoo.common.errors import Invalid


class NameServers:
    """Equal name servers over one database; a failed one is passed over."""

    def __init__(self, addresses: str) -> None:
        """Take `host:port`, several separated by `;`. Errors: Invalid."""
        self._addresses = tuple(part.strip() for part in addresses.split(";") if part.strip())
        if not self._addresses:
            raise Invalid("no name server; give host:port, several separated by ;", field="namesrv_address")
        for address in self._addresses:
            host, colon, port = address.rpartition(":")
            if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
                raise Invalid(f"{address!r}; expected host:port, several separated by ;", field="namesrv_address")
        self._chosen = 0

    @property
    def current(self) -> str:
        """The one to ask."""
        return self._addresses[self._chosen]

    def next_after(self, failed: str) -> None:
        """Ask another one from now on, if there is one and nobody has changed it already."""
        if failed == self.current:
            self._chosen = (self._chosen + 1) % len(self._addresses)
