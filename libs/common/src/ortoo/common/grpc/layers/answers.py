"""Several answers of a stream that its handler yields at once."""

from collections.abc import Callable, Sequence
from typing import Any


class Answers(list[Any]):
    """Answers that are ready together. Layers see each of them, and the transport may write them together.

    The client receives them as if they were yielded one after another.
    """


def each(answer: Any) -> Sequence[Any]:
    """The answers in what a handler has yielded."""
    return answer if isinstance(answer, Answers) else (answer,)


def passing(hooks: Sequence[Callable[[Any, Any], Any]]) -> Callable[[Any, Any], list[Any]]:
    """A function that passes what a handler has yielded through the hooks of layers, from the innermost layer on."""

    def passed(call: Any, answer: Any) -> list[Any]:
        ready = list(each(answer))
        for hook in hooks:
            ready = [hook(call, one) for one in ready]
        return ready

    return passed


def noting(hooks: Sequence[Callable[[Any, Any], None]]) -> Callable[[Any, Any], None]:
    """A function that calls the hooks of layers with each answer that was sent."""

    def sent(call: Any, answer: Any) -> None:
        for one in each(answer):
            for hook in hooks:
                hook(call, one)

    return sent
