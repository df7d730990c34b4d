"""A simulated process: it owns the channels and servers that its tasks create, and a kill ends them."""

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

NODE: contextvars.ContextVar["Node | None"] = contextvars.ContextVar("node", default=None)
"""The node of the running task; None for tasks without one, such as a test. Tasks inherit it."""


class Node:
    """One process of a cluster in memory. It owns objects created in its context; they die with it."""

    def __init__(self, name: str) -> None:
        """`name` is for people and for the network."""
        self.name = name
        self.is_alive = True
        self.context = contextvars.copy_context()
        """Its first task runs in a copy of this context."""
        self.context.run(NODE.set, self)
        self.remains: list[object] = []
        """Objects of a dead node, kept so that the garbage collector does not run their clean-up code."""
        self._heirs: dict[Callable[[bool], None], None] = {}

    def __repr__(self) -> str:
        return f"<Node {self.name}{'' if self.is_alive else ', dead'}>"

    def add_kill_callback(self, heir: Callable[[bool], None]) -> None:
        """Call `heir` at the kill, after those registered before, with whether the kill is silent."""
        self._heirs[heir] = None

    def remove_kill_callback(self, heir: Callable[[bool], None]) -> None:
        """Undo `add_kill_callback`."""
        self._heirs.pop(heir, None)

    def kill(self, *, silently: bool = False) -> None:
        """End it as SIGKILL does: its tasks are not notified, and messages neither enter nor leave it.

        Its kernel closes its connections, so that the other ends learn it. `silently` is a power cut, which no end
        learns. Its tasks are not touched. A loop that supports nodes drops their callbacks. On any other loop they wait
        forever, or run and get no answers.
        """
        if not self.is_alive:
            return
        self.is_alive = False
        heirs, self._heirs = tuple(self._heirs), {}
        for heir in heirs:
            heir(silently)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One end of a connection: its loop, its node, and the context of its callbacks."""

    loop: asyncio.AbstractEventLoop
    node: Node | None
    context: contextvars.Context

    @classmethod
    def here(cls) -> Self:
        """The endpoint of the calling task."""
        return cls(asyncio.get_running_loop(), NODE.get(), contextvars.copy_context())

    @property
    def is_alive(self) -> bool:
        """Whether its node is alive; an endpoint without a node is never killed."""
        return self.node is None or self.node.is_alive

    def soon(self, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        """Call in its context, after the callbacks that are scheduled already."""
        return self.loop.call_soon(callback, *args, context=self.context)

    def at(self, when_s: float, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        """Call in its context at a time of the loop, or soon if that has passed."""
        if when_s <= self.loop.time():
            return self.soon(callback, *args)
        return self.loop.call_at(when_s, callback, *args, context=self.context)
