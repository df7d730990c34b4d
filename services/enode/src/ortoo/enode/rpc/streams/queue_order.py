"""Holds back the answer of a request until its queue's earlier requests are answered."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")


@dataclass(slots=True, eq=False)
class Turn(Generic[R]):
    """A request's place in the order of the requests for its queue."""

    queue: tuple[int, int]
    cost_bytes: int
    answer: R | None = None


class QueueOrder(Generic[R]):
    """Puts answers in the order of their requests within a queue; queues do not wait for each other."""

    def __init__(self, put: Callable[[R, int], None]) -> None:
        """`put` is called with each answer and its cost when all earlier requests of the queue are answered."""
        self._put = put
        self._queues: dict[tuple[int, int], deque[Turn[R]]] = {}

    def take_turn(self, queue: tuple[int, int], cost_bytes: int) -> Turn[R]:
        """Take the next place in the order of `queue`."""
        turn: Turn[R] = Turn(queue, cost_bytes)
        self._queues.setdefault(queue, deque()).append(turn)
        return turn

    def answer(self, turn: Turn[R], answer: R) -> None:
        """Set the answer of one place; put all answers that no longer wait for an earlier answer."""
        turn.answer = answer
        turns = self._queues[turn.queue]
        while turns and turns[0].answer is not None:
            first = turns.popleft()
            assert first.answer is not None
            self._put(first.answer, first.cost_bytes)
        if not turns:
            del self._queues[turn.queue]
