"""Addresses of the form host:port."""

from collections.abc import Mapping
from ipaddress import ip_address

from ortoo.common.errors import Invalid

PROXY_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
"""The variables with the address of a proxy; gRPC uses the first one that is set."""


def is_address(text: str, *, port_min: int = 1) -> bool:
    """Whether `text` is host:port with a valid port number; an IPv6 host is in square brackets."""
    host, _, port = text.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and port_min <= int(port) < 65536
    is_bracketed = host.startswith("[") and host.endswith("]")
    return bool(host) and is_port and (is_bracketed or ":" not in host)


def check_address(text: str, field: str) -> None:
    """Raise Invalid unless `text` is host:port; port 0 means any free port."""
    if not is_address(text, port_min=0):
        raise Invalid(f"{text!r}; expected host:port, with an IPv6 address in brackets: [::1]:8081", field=field)


def is_loopback(text: str) -> bool:
    """Whether a listener on host:port is reachable from its own machine only."""
    host = text.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def proxy_variable(text: str, environ: Mapping[str, str]) -> str:
    """The environment variable whose proxy gRPC uses for a connection to host:port; empty = it uses none.

    Connections of this library to the loopback never use a proxy.
    """
    if is_loopback(text):
        return ""
    host = text.rpartition(":")[0]
    excepted = environ.get("no_grpc_proxy") or environ.get("no_proxy", "")
    if any(host.endswith(one) for one in map(str.strip, excepted.split(",")) if one):
        return ""
    return next((name for name in PROXY_VARIABLES if environ.get(name)), "")


def check_proxy(url: str | None) -> None:
    """Raise Invalid unless `url` is http://host:port of a proxy, empty (no proxy) or None (as the environment says)."""
    scheme, _, rest = (url or "").rpartition("://")
    if url and not (scheme == "http" and is_address(rest.rpartition("@")[2].rstrip("/"))):
        raise Invalid("expected http://host:port, or http://user:password@host:port", field="proxy")


def check_receiver(text: str, field: str) -> None:
    """Raise Invalid unless `text` is http://host:port or https://host:port; empty = no receiver."""
    scheme, _, address = text.rpartition("://")
    if text and not (scheme in ("http", "https") and is_address(address.rstrip("/"))):
        raise Invalid(f"{text!r}; expected http://host:port of an OTLP/gRPC receiver", field=field)


def check_advertised(
    text: str, listen_address: str = "", *, who: str = "others", field: str = "advertised_address"
) -> None:
    """Raise Invalid unless `text`, the advertised address, can be reached; if it is empty, check `listen_address`.

    `who` names the callers in the error.
    """
    if text:
        check_address(text, field)
        if text.endswith(":0"):
            raise Invalid("port 0 cannot be reached; give the real port", field=field)
    elif listen_address.startswith(("0.0.0.0:", "[::]:")):
        raise Invalid(
            f"listening on {listen_address}, but {who} need an address to reach this process; give host:port",
            field="advertised_address",
        )


def advertised_address_of(bound_address: str, advertised_address: str) -> str:
    """The address to advertise: the advertised host with the bound port."""
    if not bound_address or not is_address(advertised_address):
        return bound_address
    return f"{advertised_address.rpartition(':')[0]}:{bound_address.rpartition(':')[2]}"
