"""The client for programs without an event loop: the same calls, each returning when it has completed.

    from ortoo.client import Message
    from ortoo.client.blocking import connect

    with connect("localhost:8081") as mq:
        with mq.producer("orders") as producer:
            receipt = producer.send(Message(b"hello"))
        with mq.consumer("billing", "orders") as consumer:
            for message in consumer:
                consumer.ack(message)

One thread runs the event loop of each connection. Calls may come from any thread. Without a `with` block, call
`close()` at the end. The method `with_timeout` of each object returns a copy whose calls have a time limit.

A name is imported at its first use, as in `ortoo.client`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ortoo.client.blocking.admin import BlockingAdmin, BlockingGroupAdmin
    from ortoo.client.blocking.client import (
        BlockingClient,
        BlockingProducer,
        BlockingTransaction,
        BlockingTransactionalProducer,
        connect,
    )
    from ortoo.client.blocking.consumers import BlockingConsumer, BlockingPopConsumer, BlockingPullConsumer

__all__ = [
    "BlockingAdmin",
    "BlockingClient",
    "BlockingConsumer",
    "BlockingGroupAdmin",
    "BlockingPopConsumer",
    "BlockingProducer",
    "BlockingPullConsumer",
    "BlockingTransaction",
    "BlockingTransactionalProducer",
    "connect",
]

_MODULES: dict[str, tuple[str, ...]] = {
    "ortoo.client.blocking.admin": ("BlockingAdmin", "BlockingGroupAdmin"),
    "ortoo.client.blocking.client": (
        "BlockingClient",
        "BlockingProducer",
        "BlockingTransaction",
        "BlockingTransactionalProducer",
        "connect",
    ),
    "ortoo.client.blocking.consumers": ("BlockingConsumer", "BlockingPopConsumer", "BlockingPullConsumer"),
}
"""The public names by module. The interpreter uses them; type checkers use the imports above."""
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use. Errors: AttributeError."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return [*globals(), *(name for name in _MODULE_OF if name not in globals())]
