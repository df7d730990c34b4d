"""Shell completion of arguments: the cluster's topics, groups and enodes, and the profiles.

The shell waits for each completion and shows any output within the command line. Completion therefore ends after
`TIMEOUT_S`, prints no errors, and offers nothing on failure.
"""

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from ortoo.client import Client, ProcessInfo

TIMEOUT_S = 1.0
"""Longest wait for the cluster."""
SYSTEM_PREFIX = "%"
"""Prefix of topics that belong to groups; offered only after this prefix, and never declared or filled by users."""
Completion = Callable[[typer.Context, str], list[str]]


def completion(query: "Callable[[Client], Awaitable[Iterable[Any]]]", name: str = "name") -> Completion:
    """Make the completion function of a parameter, which offers the attribute `name` of each result of `query`."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        import asyncio

        with _silence():
            try:
                found = asyncio.run(_query_cluster(query, context))
            except Exception:  # any error, because the shell cannot show it
                return []
        return _matching(map(attrgetter(name), found), incomplete)

    return complete


def complete_profiles(incomplete: str) -> list[str]:
    """The names of the profiles that start with the text `incomplete`."""
    from ortoo.client.core.credentials import profiles_folder

    return _matching([file.stem for file in profiles_folder().glob("*.toml")], incomplete)


async def _query_cluster(
    query: "Callable[[Client], Awaitable[Iterable[Any]]]", context: typer.Context
) -> Iterable[Any]:
    """The results of `query` in the cluster. Errors: TimeoutError after `TIMEOUT_S`, OrtooError."""
    import asyncio

    from ortoo.client import connect

    profile = context.find_root().params.get("profile") or ""
    address = context.params.get("address") or ""
    if profile and address == os.environ.get("ORTOO_ADDRESS"):
        address = ""  # as in the command, a given profile precedes ORTOO_ADDRESS
    async with asyncio.timeout(TIMEOUT_S), connect(address, profile="" if address else profile) as mq:
        return await query(mq)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    visible = (name for name in names if incomplete.startswith(SYSTEM_PREFIX) or not name.startswith(SYSTEM_PREFIX))
    return sorted(name for name in visible if name.startswith(incomplete))


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Discard standard error, including the output of gRPC's C code."""
    saved = os.dup(2)
    null_device = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null_device, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(null_device)
        os.close(saved)


async def _enodes(mq: "Client") -> "tuple[ProcessInfo, ...]":
    return (await mq.admin.describe_cluster()).enodes


complete_topics = completion(lambda mq: mq.admin.list_topics())
complete_groups = completion(lambda mq: mq.admin.list_groups())
complete_enodes = completion(_enodes)
complete_deleted_topics = completion(lambda mq: mq.admin.list_deleted_topics(), "topic.name")
complete_deleted_groups = completion(lambda mq: mq.admin.list_deleted_groups(), "group.name")
complete_orphaned_topics = completion(lambda mq: mq.admin.list_orphaned_topics())
