"""Planted: rules of the replication protocol, switched off one by one in the product.

The rules are those that the explorer switches off in its walks.
"""

from collections.abc import Callable
from typing import Any

from ortoo.enode.replication.protocol import replica
from ortoo.enode.replication.protocol.rules import Rules
from tests.simulation.replicas.planted_bugs import SWITCHES

protocol: Any = replica
"""A starting replica gets its rules by a name of this module."""


def _planting(rules: type[Rules]) -> Callable[[], None]:
    def plant() -> None:
        protocol.Rules = rules

    plant.__doc__ = f"Rules: {(rules.__doc__ or '')[0].lower()}{(rules.__doc__ or '')[1:]}"
    plant.__module__ = __name__
    return plant


globals().update({name: _planting(switch.rules) for name, switch in SWITCHES.items() if switch.rules is not Rules})
