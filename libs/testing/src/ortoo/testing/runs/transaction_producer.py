"""A producer of transactions that may be killed at any moment, and what it writes down about them before.

The ledger is its database: lines "begun N", "commit N", "roll_back N", and "dead C" by who killed producer C. A
transaction N belongs to producer N // 1000. What the ledger says is what must become of a transaction; when it says
nothing and the owner is dead, two of three are rolled back, and about the third nobody ever knows.
"""

import asyncio
import contextlib
import os
from pathlib import Path

from ortoo.client import Message, OrtooError, TransactionalProducer, TransactionCheck, Verdict, connect
from ortoo.common.logs.logger import configure
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness

TOPIC, GROUP = "t", "p"
AT_ONCE = 4
PER_PRODUCER = 1000


class Ledger:
    """A file that several processes append lines to; a line is written at once or not at all."""

    def __init__(self, path: Path) -> None:
        """Use the file at `path`, made when it is not there."""
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)

    def write(self, word: str, number: int) -> None:
        """Append a line."""
        os.write(self._file, f"{word} {number}\n".encode())

    def read(self) -> dict[str, set[int]]:
        """Numbers by word."""
        found: dict[str, set[int]] = {"begun": set(), "commit": set(), "roll_back": set(), "dead": set()}
        for line in os.pread(self._file, os.fstat(self._file).st_size, 0).decode().splitlines():
            word, number = line.split()
            found[word].add(int(number))
        return found


def is_never_known(number: int) -> bool:
    """Whether nobody will ever say what became of it, unless its producer did."""
    return number % 3 == 0


async def checker(ledger: Ledger, check: TransactionCheck) -> Verdict:
    """What the ledger says became of a transaction."""
    number, said = int(check.messages[0].keys[0]), ledger.read()
    if number in said["commit"]:
        return Verdict.COMMIT
    if number in said["roll_back"]:
        return Verdict.ROLL_BACK
    if number // PER_PRODUCER in said["dead"] and not is_never_known(number):
        ledger.write("roll_back", number)
        return Verdict.ROLL_BACK
    return Verdict.UNKNOWN


async def produce(address: str, path: Path, identity: int, count: int) -> None:
    """Begin and end `count` transactions, several at once, and answer for others until cancelled."""
    ledger, chance, clock = Ledger(path), Randomness(identity), SystemClock()
    numbers = iter(range(identity * PER_PRODUCER, identity * PER_PRODUCER + count))

    async def work(producer: TransactionalProducer) -> None:
        for number in numbers:
            with contextlib.suppress(OrtooError):
                begun = await producer.begin(Message(b"%d" % number, keys=(str(number),)))
                ledger.write("begun", number)
                await clock.sleep(chance.below(20) / 1000)
                is_meant = chance.below(2) == 0
                ledger.write("commit" if is_meant else "roll_back", number)
                await clock.sleep(chance.below(20) / 1000)
                await (begun.commit() if is_meant else begun.roll_back())

    async with (
        connect(address) as mq,
        mq.transactional_producer(TOPIC, GROUP, lambda check: checker(ledger, check)) as producer,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(AT_ONCE):
            group.create_task(work(producer))
        await asyncio.get_running_loop().create_future()


def run(address: str, path: str, identity: int, count: int) -> None:
    """What a process of its own does until it is killed."""
    configure(level="error")
    asyncio.run(produce(address, Path(path), identity, count))
