"""What the shell offers for an argument: the cluster's topics, groups and enodes, and the profiles.

The shell waits for it with every press of the key, and shows what is printed in the middle of the line: so it ends
after `LIMIT_S`, says nothing of what went wrong, and then offers nothing.
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
"""The longest that a cluster is waited for."""
OWN = "%"
"""What the names of groups' own topics begin with: offered to who asks for them, declared and filled by nobody else."""
Completion = Callable[[typer.Context, str], list[str]]


def completion(ask: "Callable[[Client], Awaitable[Iterable[Any]]]", name: str = "name") -> Completion:
    """What Typer takes for a parameter whose values are names of what `ask` gets from the cluster that is meant."""

    def offered(context: typer.Context, incomplete: str) -> list[str]:
        import asyncio

        with _silence():
            try:
                found = asyncio.run(_asked(ask, context))
            except Exception:  # whatever it is, the shell has no place for it
                return []
        return _fitting(map(attrgetter(name), found), incomplete)

    return offered


def offered_profiles(incomplete: str) -> list[str]:
    """The names of the profiles."""
    from ortoo.client.core.credentials import profiles_folder

    return _fitting([file.stem for file in profiles_folder().glob("*.toml")], incomplete)


async def _asked(ask: "Callable[[Client], Awaitable[Iterable[Any]]]", context: typer.Context) -> Iterable[Any]:
    """What the cluster has. Errors: TimeoutError after `LIMIT_S`, OrtooError."""
    import asyncio

    from ortoo.client import connect

    profile = context.find_root().params.get("profile") or ""
    address = context.params.get("address") or ""
    if profile and address == os.environ.get("ORTOO_ADDRESS"):
        address = ""  # as the command does, where the profile is given and the address is not
    async with asyncio.timeout(LIMIT_S), connect(address, profile="" if address else profile) as mq:
        return await ask(mq)


def _fitting(names: Iterable[str], incomplete: str) -> list[str]:
    shown = (name for name in names if incomplete.startswith(OWN) or not name.startswith(OWN))
    return sorted(name for name in shown if name.startswith(incomplete))


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Drop what is written to standard error, by gRPC's own code too."""
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
