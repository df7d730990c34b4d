"""A night of an operator: thirty typical tasks in a row, each by one command, against one cluster."""

import asyncio
import contextlib
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import typer

from ortoo.cli.app import app
from ortoo.client import Client, Message, PopSettings, TransactionVerdict, connect
from ortoo.verification.servers.cluster import open_cluster


class Task(NamedTuple):
    """The operator's goal, the command, and the expected output. Its named parts are available to later tasks."""

    wanted: str
    typed: str
    seen: str


SENDING = (
    Task("who is there", "cluster", r"enode +enode-0 .* alive\nenode +enode-1 .* alive\nsnode +snode-0 .* alive"),
    Task("a topic", "topic create orders --queues 1", "topic orders is ready with 2 queues"),
    Task("a topic in order", "topic create steps --type fifo", "topic steps is ready with 8 queues"),
    Task("can it be written and read", "probe orders -n 2", r"(enode-[01] +0 +0 .*\n){2}"),
    Task(
        "send one",
        "send orders first --key k1 --tag red",
        r"stored (?P<id>\S+) in queue (?P<queue>\d+) of (?P<enode>\S+) at offset (?P<offset>\d+)",
    ),
    Task("find it by its id", "message get orders {id}", r"body +first"),
    Task("find it by its place", "message at orders {enode} {queue} {offset}", r"keys +\['k1'\]"),
    Task("find it by its key", "message find orders --key k1", "{id} .*first"),
    Task("send a delayed one", "send orders later --delay 1h", "delayed (?P<delayed>.*); to cancel"),
    Task("the delayed messages", "delay list orders", r"{delayed} +(?P<handle>\S+)"),
    Task("take it back", "delay cancel {handle}", "recalled {handle}"),
    Task("allow one attempt", "group update billing --attempts 1", "changed group billing"),
)
LOOKING = (
    Task("the lag of the group", "lag billing orders", "billing is 0 messages behind in orders"),
    Task("the settings of a group", "group describe billing", r"attempts +1 "),
    Task("how does it consume", "group mode billing", r"orders +enode-0 +pop"),
    Task("why is it not consumed", "explain billing orders", "consumer lag|no backlog|acknowledged|no pop requests"),
    Task("why was this one not", "explain billing orders {id}", "parked"),
    Task("the state of each message", "delivery billing orders --from 0", "parked"),
    Task("what failed", "dlq list billing", r"^(?P<letter>\S+-\S+) .*no such customer"),
    Task("why did it", "dlq show billing {letter}", "no such customer"),
    Task("send it again", "dlq replay billing", "1 message sent again"),
    Task("whose transaction hangs", "tx list", r"orders +shop .* (?P<tx>\S+)$"),
    Task("roll it back", "tx rollback {tx}", "rolled back {tx}"),
    Task("who is connected", "clients --group readers", r"snode-0 +python .* readers"),
    Task("what flows", "top -n 1", "2 enodes, 1 snode"),
)
CHANGING = (
    Task("start another group there", "group clone billing audit orders", "audit"),
    Task("consume all of it again", "reset-offset audit orders --to begin --force", "orders"),
    Task("more queues", "topic update orders --queues 2", "orders"),
    Task("nobody may send", "topic update orders --permission read_only", "orders"),
    Task("again they may", "topic update orders --permission read_write", "orders"),
    Task("the contents of a topic", "topic describe orders", r"orders: \d+ messages in 4 queues, read_write"),
    Task("empty an enode", "enode drain enode-1", "no messages are sent to enode-1"),
    Task("take it back", "enode fill enode-1", "resumed sends to enode-1"),
    Task("keep what there is", "export", r'name = "orders"\nqueues = 2'),
    Task("is it as the file says", "apply -f {file} --dry-run", "would change 1 entry"),
    Task("make it so", "apply -f {file}", "changed 1 entry"),
    Task("this was a mistake", "topic delete steps", "deleted topic steps"),
    Task("the deleted topics", "topic deleted", "steps"),
    Task("take that back too", "topic undelete steps", "topic steps is restored with 8 queues"),
    Task("a group too many", "group delete audit", "audit"),
    Task("what is wrong", "doctor --patience 10", "ortoo group describe billing shows more"),
)


class Terminal:
    """Types commands; named parts of their output are available to later ones."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.known: dict[str, str] = {}

    async def type_all(self, tasks: Sequence[Task]) -> None:
        """Type one after another; each ends with 0 and prints what is expected."""
        for task in tasks:
            words = [word.format(**self.known) for word in task.typed.split()]
            out = await asyncio.to_thread(self._typed, words)
            found = re.search(re.sub(r"\{([a-z]+)\}", self._escaped, task.seen), out, re.M)
            assert found, (task, out)
            self.known |= found.groupdict()

    def _escaped(self, name: re.Match[str]) -> str:
        return re.escape(self.known[name[1]])

    def _typed(self, words: list[str]) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            try:
                code = app(words, standalone_mode=False)
            except typer.Exit as end:
                code = end.exit_code
        assert not code, (words, code, out.getvalue())
        return out.getvalue()


async def _work(mq: Client) -> None:
    """The work of applications: a message is parked, and a transaction is left open."""
    async with mq.pop_consumer("billing", "orders", "red", PopSettings()) as consumer:
        async with asyncio.timeout(60):
            while not (popped := await consumer.pop(wait_ms=1_000)):
                pass
        assert [one.body for one in popped] == [b"first"]
        await popped[0].park(error="no such customer")


async def test_thirty_tasks_of_a_night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is one command that prints its effect; none needs a restart or another tool."""
    tasks = (*SENDING, *LOOKING, *CHANGING)
    assert len({task.typed for task in tasks}) >= 30
    file = tmp_path / "cluster.toml"
    file.write_text('[[group]]\nname = "billing"\nattempts = 7\n')
    async with open_cluster(tmp_path, enodes=2) as cluster, connect(cluster.address) as mq:
        monkeypatch.setenv("ORTOO_ADDRESS", cluster.address)
        terminal = Terminal(cluster.address)
        terminal.known["file"] = str(file)
        await terminal.type_all(SENDING)
        await _work(mq)

        async def undecided(message: object) -> TransactionVerdict:
            return TransactionVerdict.UNKNOWN

        async with (
            mq.transactional_producer("orders", "shop", undecided) as producer,
            mq.consumer("readers", "steps"),
        ):
            await producer.begin(Message(b"half"))
            await terminal.type_all(LOOKING)
        await terminal.type_all(CHANGING)
