"""The tasks of an application: `python mails.py` runs a worker, `python mails.py welcome ann` stores calls."""

import sys
from datetime import timedelta

from task_queue import TaskQueue

tasks = TaskQueue("mails", retries=(timedelta(seconds=1), timedelta(seconds=10)))
attempts: dict[str, int] = {}


@tasks.task
def welcome(name: str) -> None:
    """Greet a new customer. The mail server refuses each first mail, so that the call runs again."""
    attempts[name] = attempts.get(name, 0) + 1
    if attempts[name] == 1:
        raise ConnectionError("the mail server is busy")
    print("welcome,", name, flush=True)


@tasks.task
def remind(name: str, *, days: int) -> None:
    """Remind a customer."""
    print(name, "has not been here for", days, "days", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["welcome"]:
        welcome.delay(sys.argv[2])
        remind.delay_by(timedelta(seconds=2), sys.argv[2], days=7)
    else:
        tasks.work()
