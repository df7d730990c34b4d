"""Declares a command as one async function from its arguments to its output.

    async def lag(mq: "Client", group: GroupName, topic: TopicName) -> CommandOutput: ...

`command(lag)` is the function for Typer. It adds --address and --json, connects, calls `lag`, and prints. A function
with several outputs is an async generator. A function that needs the output format has a parameter `as_json`.
"""

import contextlib
import inspect
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, TypeVar

import typer

from ortoo.cli.terminal.completion import complete_enodes, complete_groups, complete_topics
from ortoo.cli.terminal.output import show

Work = TypeVar("Work", bound=Callable[..., Any])
Commands = dict[str, Callable[..., Any]]
"""Commands with a common first word, each by its second word."""
Address = Annotated[
    str,
    typer.Option(
        envvar="ORTOO_ADDRESS",
        help="host:port of a snode; several with commas.",
        show_default="the profile's, or localhost:8081",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
GroupName = Annotated[str, typer.Argument(help="The group's name.", autocompletion=complete_groups)]
TopicName = Annotated[str, typer.Argument(help="The topic's name.", autocompletion=complete_topics)]
EnodeName = Annotated[str, typer.Argument(help="The enode's name.", autocompletion=complete_enodes)]


def command(work: Callable[..., Any]) -> Callable[..., None]:
    """Make a Typer command from `work`, whose first argument is the client."""
    parameters_by_name = dict(list(inspect.signature(work).parameters.items())[1:])
    wants_as_json = parameters_by_name.pop("as_json", None) is not None
    by_name = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        *(parameter.replace(kind=by_name) for parameter in parameters_by_name.values()),
        inspect.Parameter("address", by_name, annotation=Address, default=""),
        inspect.Parameter("as_json", by_name, annotation=AsJson, default=False),
    ]

    def run_command(*, address: str, as_json: bool, **arguments: Any) -> None:
        if wants_as_json:
            arguments["as_json"] = as_json
        run(_run_and_show(work, address, arguments, as_json=as_json))

    run_command.__doc__ = work.__doc__
    run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run_command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run_command


def with_options(options: Mapping[str, object]) -> Callable[[Work], Work]:
    """Add `options`, by name and annotation, to a command. Its function gets them as `**options`; None = not given."""

    def decorate(work: Work) -> Work:
        *named, _ = inspect.signature(work).parameters.values()
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=None)
            for name, annotation in options.items()
        ]
        work.__signature__ = inspect.Signature([*named, *added])  # type: ignore[attr-defined]
        return work

    return decorate


async def _run_and_show(work: Callable[..., Any], address: str, arguments: dict[str, Any], *, as_json: bool) -> None:
    from ortoo.client import connect  # slow, and not needed for `--help`

    async with connect(address) as mq:
        if not inspect.isasyncgenfunction(work):
            show(await work(mq, **arguments), as_json=as_json)
            return
        async with contextlib.aclosing(work(mq, **arguments)) as outputs:
            async for answer in outputs:
                show(answer, as_json=as_json)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a command until it ends, Ctrl-C is pressed, or the reader of its output has ended."""
    import asyncio

    from ortoo.common.logs.logger import configure
    from ortoo.common.machine.standard_files import EXIT_UNREAD

    configure(level="error")
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        sys.exit(130)
    except (BrokenPipeError, asyncio.CancelledError):  # Typer would exit with 1, as for an error
        sys.exit(EXIT_UNREAD)
