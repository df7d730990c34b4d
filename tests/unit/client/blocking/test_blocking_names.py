"""The blocking client has the same methods as the asynchronous one."""

import inspect

import pytest

from ortoo import client
from ortoo.client import blocking

PAIRS: dict[str, tuple[type, type]] = {
    "Client": (client.Client, blocking.BlockingClient),
    "Producer": (client.Producer, blocking.BlockingProducer),
    "TransactionalProducer": (client.TransactionalProducer, blocking.BlockingTransactionalProducer),
    "Consumer": (client.Consumer, blocking.BlockingConsumer),
    "PullConsumer": (client.PullConsumer, blocking.BlockingPullConsumer),
    "PopConsumer": (client.PopConsumer, blocking.BlockingPopConsumer),
    "Admin": (client.Admin, blocking.BlockingAdmin),
    "GroupAdmin": (client.GroupAdmin, blocking.BlockingGroupAdmin),
    "Transaction": (client.Transaction, blocking.BlockingTransaction),
}
ONLY_ASYNC = {
    # A blocking caller waits for the outcome; `send_many` sends many at a time.
    "Producer": {"enqueue", "enqueue_nowait", "wait_for_room"},
}
ONLY_ASYNC_EVERYWHERE = {"open"}
"""Blocking objects are open when they are made."""
ONLY_BLOCKING = {"stop", "ack", "park", "nack", "reply", "registered", "with_timeout", "close"}
"""`registered` is an event in the asynchronous client.
`stop` ends `run` from outside, where a task is cancelled. Messages
are acknowledged and replied to with methods of the consumer. `with_timeout` replaces `asyncio.timeout`.
`close` also has a limit."""


def names(of: type) -> set[str]:
    """The public names of a class."""
    return {name for name, _ in inspect.getmembers(of) if not name.startswith("_")}


@pytest.mark.parametrize("name", PAIRS)
def test_both_ways_have_the_same_names(name: str) -> None:
    """Each class has the methods of its counterpart, except those that make no sense there."""
    asynchronous, blocking_ = PAIRS[name]
    assert names(asynchronous) - names(blocking_) - ONLY_ASYNC.get(name, set()) - ONLY_ASYNC_EVERYWHERE == set()
    assert names(blocking_) - names(asynchronous) - ONLY_BLOCKING == set()


@pytest.mark.parametrize("name", PAIRS)
def test_both_ways_take_the_same_arguments(name: str) -> None:
    """Parameters have the same names, so that programs can be converted."""
    asynchronous, blocking_ = PAIRS[name]
    for method in sorted(names(asynchronous) & names(blocking_)):
        one, other = getattr(asynchronous, method), getattr(blocking_, method)
        if inspect.isfunction(one) and inspect.isfunction(other) and method not in ONLY_BLOCKING:
            here, there = inspect.signature(one).parameters, inspect.signature(other).parameters
            assert list(here) == list(there), f"{name}.{method}"


@pytest.mark.parametrize("name", PAIRS)
def test_both_ways_say_what_they_do(name: str) -> None:
    """`help` of a derived method shows that of the asynchronous one."""
    for method in sorted(names(PAIRS[name][1])):
        assert (getattr(PAIRS[name][1], method).__doc__ or "").strip(), f"{name}.{method}"
