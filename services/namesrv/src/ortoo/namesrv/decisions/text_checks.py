"""Checks of the texts that processes report about themselves."""

from ortoo.common.cluster.addresses import is_address
from ortoo.common.errors import Invalid

TEXT_LENGTH_MAX = 255


def check_address(address: str, name: str) -> None:
    """Refuse a text that is not host:port. Errors: Invalid."""
    if len(address) > TEXT_LENGTH_MAX or not is_address(address):
        raise Invalid(
            f"{address[:TEXT_LENGTH_MAX]!r}; give host:port at which other processes reach this process", field=name
        )


def check_text(text: str, name: str, kind: str) -> None:
    """Refuse a text that is empty or too long. Errors: Invalid."""
    if not 1 <= len(text) <= TEXT_LENGTH_MAX:
        raise Invalid(f"{len(text)} characters; give {kind}, 1 to {TEXT_LENGTH_MAX} characters", field=name)
