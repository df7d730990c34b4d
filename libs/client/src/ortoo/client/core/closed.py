"""Errors for the use of an object after its end, or from another event loop than its own."""

import asyncio

from ortoo.common.errors import Conflict
from ortoo.common.machine.forks import is_forked_after_channel


class ClientClosed(Conflict):
    """A client or producer was used after its end, or a producer before it was entered; the message has the remedy."""

    def __init__(self, message: str = "this client is closed; connect again") -> None:
        """`message` names the closed object; by default it is the whole client."""
        super().__init__(message)


class ConsumerClosed(Conflict):
    """A consumer was used after it left its group, or before it was entered with `async with`."""


def check_loop(owner: asyncio.AbstractEventLoop | None) -> None:
    """Refuse a call on another event loop or thread than `owner`; None = the object has no loop yet.

    Errors: Conflict. Without this check a call on another loop may hang.
    """
    if owner is not None and owner is not asyncio._get_running_loop():
        raise Conflict(
            "this client belongs to another event loop or thread. Connect on the loop that uses it, use "
            "asyncio.run_coroutine_threadsafe from a thread, or use ortoo.client.blocking, which takes calls from any "
            "thread"
        )


def check_not_forked() -> None:
    """Refuse to connect in a forked child of a process that has connected before. Errors: Conflict."""
    if is_forked_after_channel():
        raise used_before_fork()


def used_before_fork() -> Conflict:
    """The error for a connection in a forked child."""
    return Conflict(
        "this process was forked from one that had connected, and gRPC's threads do not survive a fork. Connect for "
        "the first time after the fork. In gunicorn, leave out --preload or use the hook post_fork. In Celery, use the "
        "signal worker_process_init, and in multiprocessing the method spawn"
    )
