"""Drains that last until a test ends them, so that the test has time on a machine of any speed."""

import asyncio
from typing import Any

import pytest

from ortoo.common.grpc.server import GrpcServer

DRAIN_DELAY_S = 600.0
"""Longer than a test."""


def drains_until(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """The event that ends the drain delay of every server that is made from now on."""
    ended, make = asyncio.Event(), GrpcServer.__init__

    def made(self: GrpcServer, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options | {"alone": ended})

    monkeypatch.setattr(GrpcServer, "__init__", made)
    return ended
