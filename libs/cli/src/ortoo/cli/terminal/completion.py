"""Shell completion of arguments: the cluster's topics, groups and enodes, and the profiles.

The shell waits for each completion and shows any output within the command line. Completion therefore ends after
`LIMIT_S`, prints no errors, and offers nothing on failure.
"""

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from ortoo.client import Client, ProcessInfo

LIMIT_S = 1.0
"""Longest wait for the cluster."""
OWN = "%"
"""Prefix of topics that belong to groups; offered only after this prefix, and never declared or filled by users."""
Completion = Callable[[typer.Context, str], list[str]]


def completion(ask: "Callable[[Client], Awaitable[Iterable[Any]]]", name: str = "name") -> Completion:
    """The completion for a parameter; its values are attribute `name` of the results of `ask`."""

    def offered(context: typer.Context, incomplete: str) -> list[str]:
        import asyncio

        with _silence():
            try:
                found = asyncio.run(_asked(ask, context))
            except Exception:  # any error, because the shell cannot show it
                return []
        return _fitting(map(attrgetter(name), found), incomplete)

    return offered


def offered_profiles(incomplete: str) -> list[str]:
    """The names of the profiles."""
    from ortoo.client.core.credentials import profiles_folder

    return _fitting([file.stem for file in profiles_folder().glob("*.toml")], incomplete)


async def _asked(ask: "Callable[[Client], Awaitable[Iterable[Any]]]", context: typer.Context) -> Iterable[Any]:
    """The values in the cluster. Errors: TimeoutError after `LIMIT_S`, OrtooError."""
    import asyncio

    from ortoo.client import connect

    profile = context.find_root().params.get("profile") or ""
    address = context.params.get("address") or ""
    if profile and address == os.environ.get("ORTOO_ADDRESS"):
        address = ""  # as in the command, a given profile precedes ORTOO_ADDRESS
    async with asyncio.timeout(LIMIT_S), connect(address, profile="" if address else profile) as mq:
        return await ask(mq)


def _fitting(names: Iterable[str], incomplete: str) -> list[str]:
    shown = (name for name in names if incomplete.startswith(OWN) or not name.startswith(OWN))
    return sorted(name for name in shown if name.startswith(incomplete))


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Discard standard error, including the output of gRPC's C code."""
    kept = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(nothing)
        os.close(kept)


async def _enodes(mq: "Client") -> "tuple[ProcessInfo, ...]":
    return (await mq.admin.describe_cluster()).enodes


offered_topics = completion(lambda mq: mq.admin.list_topics())
offered_groups = completion(lambda mq: mq.admin.list_groups())
offered_enodes = completion(_enodes)
offered_deleted_topics = completion(lambda mq: mq.admin.list_deleted_topics(), "topic.name")
offered_deleted_groups = completion(lambda mq: mq.admin.list_deleted_groups(), "group.name")
offered_adoptions = completion(lambda mq: mq.admin.list_offered_topics())
