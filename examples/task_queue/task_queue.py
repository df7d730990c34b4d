"""A task queue in the style of Celery, in sixty lines: a function becomes a task by a decorator.

    tasks = TaskQueue("mails")

    @tasks.task
    def welcome(name: str) -> None: ...

    welcome.delay("ann")      # in any process: store the call
    tasks.work()              # in a worker: run the calls

A call is a message with the name of the function as tag, and with the arguments as JSON. It is acknowledged when the
function has returned, so a call that was interrupted by a crash runs again.
"""

import json
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, Generic, ParamSpec

from ortoo.client import App, Message, PoppedMessage, blocking
from ortoo.client.blocking.client import BlockingProducer

P = ParamSpec("P")


class Task(Generic[P]):
    """A function whose calls may run in another process."""

    def __init__(self, queue: "TaskQueue", function: Callable[P, object]) -> None:
        """Applications use `TaskQueue.task`."""
        self._queue = queue
        self.name = function.__name__
        self.function = function

    def __call__(self, *arguments: P.args, **options: P.kwargs) -> object:
        """Run the function here and now."""
        return self.function(*arguments, **options)

    def delay(self, *arguments: P.args, **options: P.kwargs) -> str:
        """Store a call for a worker; returns the id of its message. Errors: as `Producer.send`."""
        return self._queue.send(self.name, arguments, options, None)

    def delay_by(self, delay: timedelta, *arguments: P.args, **options: P.kwargs) -> str:
        """As `delay`, but no worker gets the call before `delay` has passed."""
        due_ms = int((time.time() + delay.total_seconds()) * 1000)
        return self._queue.send(self.name, arguments, options, due_ms)


class TaskQueue:
    """Tasks that share one topic and its workers."""

    def __init__(self, topic: str, retries: Sequence[timedelta] = (timedelta(seconds=1), timedelta(minutes=1))) -> None:
        """A call that raises runs again after each delay in `retries`. Then it is a dead letter."""
        self.topic = topic
        self._tasks: dict[str, Task[...]] = {}
        self._app = App(topic)
        self._app.consumer(topic, retries=retries)(self._run)

    def task(self, function: Callable[P, object]) -> Task[P]:
        """Make a task of a function with arguments that JSON can express."""
        task = Task(self, function)
        self._tasks[task.name] = task
        return task

    def work(self) -> None:
        """Run calls until SIGTERM or Ctrl-C; running calls may finish first."""
        self._app.run()

    def send(self, name: str, arguments: Sequence[object], options: dict[str, Any], due_ms: int | None) -> str:
        """Store a call of a task; returns the id of its message."""
        body = json.dumps([arguments, options]).encode()
        return self._producer.send(Message(body, tag=name, deliver_at_ms=due_ms)).message_id

    def _run(self, call: list[Any], message: PoppedMessage) -> None:
        arguments, options = call
        self._tasks[message.tag or ""].function(*arguments, **options)

    @cached_property
    def _producer(self) -> BlockingProducer:
        """Opened by the first call in this process, which keeps it until it ends."""
        return blocking.connect().producer(self.topic)
