"""The process that a task runs in: whose channels and servers it makes, and what a kill ends."""

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

NODE: contextvars.ContextVar["Node | None"] = contextvars.ContextVar("node", default=None)
"""The node of the running task; None for those that belong to none, such as a test. Tasks inherit it."""


class Node:
    """One process of a cluster in memory. What is made in its context belongs to it and dies with it."""

    def __init__(self, name: str) -> None:
        """`name` is for people and for the network."""
        self.name = name
        self.is_alive = True
        self.context = contextvars.copy_context()
        """What its first task runs in, or rather in a copy of it."""
        self.context.run(NODE.set, self)
        self.remains: list[object] = []
        """What a dead node leaves: kept, since whoever waits for it would otherwise be collected and clean up."""
        self._heirs: dict[Callable[[bool], None], None] = {}

    def __repr__(self) -> str:
        return f"<Node {self.name}{'' if self.is_alive else ', dead'}>"

    def when_killed(self, heir: Callable[[bool], None]) -> None:
        """Have `heir` called at the kill, after those that asked before; it gets whether the kill is silent."""
        self._heirs[heir] = None

    def outlived_by(self, heir: Callable[[bool], None]) -> None:
        """Take back `when_killed`."""
        self._heirs.pop(heir, None)

    def kill(self, *, silently: bool = False) -> None:
        """End it as SIGKILL does: nobody in it hears of it, and no message enters or leaves any more.

        Its kernel closes its connections, so that the other ends hear of it; `silently` is a power cut, of which
        nobody hears anything. Its tasks are not touched: a loop that knows nodes drops their callbacks, and on any
        other one they wait for ever, or run and find that nobody answers.
        """
        if not self.is_alive:
            return
        self.is_alive = False
        heirs, self._heirs = tuple(self._heirs), {}
        for heir in heirs:
            heir(silently)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one end of a connection runs: its loop, its node, and the context in which it hears things."""

    loop: asyncio.AbstractEventLoop
    node: Node | None
    context: contextvars.Context

    @classmethod
    def here(cls) -> Self:
        """The end that belongs to whoever calls."""
        return cls(asyncio.get_running_loop(), NODE.get(), contextvars.copy_context())

    @property
    def is_alive(self) -> bool:
        """Whether its node is; what belongs to none is never killed."""
        return self.node is None or self.node.is_alive

    def soon(self, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        """Call in its context, after what is to be called already."""
        return self.loop.call_soon(callback, *args, context=self.context)

    def at(self, when_s: float, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        """Call in its context at a time of the loop, soon if that is over."""
        if when_s <= self.loop.time():
            return self.soon(callback, *args)
        return self.loop.call_at(when_s, callback, *args, context=self.context)
