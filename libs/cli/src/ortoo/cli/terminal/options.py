"""Options that many commands have, and how a command runs."""

import sys
from collections.abc import Coroutine
from typing import Annotated, Any

import typer

DEFAULT_ADDRESS = "localhost:8081"

Address = Annotated[str, typer.Option(envvar="ORTOO_ADDRESS", help="host:port of a snode; several with commas.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
GroupName = Annotated[str, typer.Argument(help="The group's name.")]
TopicName = Annotated[str, typer.Argument(help="The topic's name.")]


def several(address: str) -> list[str]:
    """The addresses of an option."""
    return [part.strip() for part in address.split(",") if part.strip()]


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a command to its end, or to Ctrl-C."""
    import asyncio

    from ortoo.common.process.logs import configure

    configure(level="error")
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        sys.exit(130)
