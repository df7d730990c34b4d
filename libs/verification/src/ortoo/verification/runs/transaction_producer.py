"""A producer of transactions that may be killed at any moment, and its ledger.

The ledger is its database, with lines "begun N", "commit N" and "roll_back N". The line "dead C" is written by the
killer of producer C. A transaction N belongs to producer N // 1000. The ledger decides the verdict. Without an entry
and with a dead owner, two of three transactions are rolled back, and the third stays unknown forever.
"""

import asyncio
import contextlib
import os
from pathlib import Path

from ortoo.client import Message, OrtooError, TransactionalProducer, TransactionCheck, TransactionVerdict, connect
from ortoo.common.logs.logger import configure
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness

TOPIC, GROUP = "t", "p"
AT_ONCE = 4
PER_PRODUCER = 1000


class Ledger:
    """A file to which several processes append lines; each line is written atomically."""

    def __init__(self, path: Path) -> None:
        """Use the file at `path`, created when it is missing."""
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
    """Whether the verdict stays unknown forever, unless its producer decided it."""
    return number % 3 == 0


async def checker(ledger: Ledger, check: TransactionCheck) -> TransactionVerdict:
    """The verdict in the ledger."""
    number, said = int(check.messages[0].keys[0]), ledger.read()
    if number in said["commit"]:
        return TransactionVerdict.COMMIT
    if number in said["roll_back"]:
        return TransactionVerdict.ROLLBACK
    if number // PER_PRODUCER in said["dead"] and not is_never_known(number):
        ledger.write("roll_back", number)
        return TransactionVerdict.ROLLBACK
    return TransactionVerdict.UNKNOWN


async def produce(address: str, path: Path, identity: int, count: int) -> None:
    """Begin and end `count` transactions, several at once, and answer checks of others until cancelled."""
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
                await (begun.commit() if is_meant else begun.rollback())

    async with (
        connect(address) as mq,
        mq.transactional_producer(TOPIC, GROUP, lambda check: checker(ledger, check)) as producer,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(AT_ONCE):
            group.create_task(work(producer))
        await asyncio.get_running_loop().create_future()


def run(address: str, path: str, identity: int, count: int) -> None:
    """The main function of a separate process, which runs until it is killed."""
    configure(level="error")
    asyncio.run(produce(address, Path(path), identity, count))
