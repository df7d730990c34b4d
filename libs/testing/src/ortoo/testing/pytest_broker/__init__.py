"""A small broker in a pytest process: name server, enode and snode in the test's process, on virtual time.

Enters: a test that asks for the fixture `broker` or `blocking_broker`, with its mark, pytest's ini file and the command
line. Leaves: the fixtures, and the report of a failed test. It is built on `ortoo.testing.simulation`. pytest alone
imports `plugin`, which imports everything else when the first test asks for a broker.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ortoo.testing.pytest_broker.blocking import BlockingBroker
    from ortoo.testing.pytest_broker.broker import Broker

__all__ = ["BlockingBroker", "Broker"]


def __getattr__(name: str) -> object:
    """The two classes, for annotations, imported on demand: pytest imports this package in every run."""
    if name == "Broker":
        from ortoo.testing.pytest_broker.broker import Broker

        return Broker
    if name == "BlockingBroker":
        from ortoo.testing.pytest_broker.blocking import BlockingBroker

        return BlockingBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
