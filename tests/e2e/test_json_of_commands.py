"""The output of `--json`: every command is called, and each line that it prints is checked."""

import asyncio
import contextlib
import importlib
import io
import json
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from ortoo import v1
from ortoo.cli.app import app
from ortoo.client import (
    Client,
    ForgottenEnode,
    Message,
    OrphanedTopic,
    PopSettings,
    PullSettings,
    ReplicaInfo,
    ReplicaSetInfo,
    TransactionVerdict,
    connect,
)
from ortoo.client.admin.admin import Admin
from ortoo.client.admin.enodes.replicas import ReplicaAdmin
from ortoo.client.admin.topics import Adoption, TopicPlacement
from ortoo.verification.servers import command
from ortoo.verification.servers.cluster import open_cluster
from tests.e2e.test_sink_commands import commit

WORDS: Mapping[str, tuple[str, ...]] = {
    "cluster": ("",),
    "topic create": ("orders --queues 1", "steps --type fifo", "measured"),
    "probe": ("orders -n 2",),
    "bench": ("measured --seconds 0.5 --rate 50",),
    "send": ("orders first --key k1 --tag red", "orders later --delay 1h", "steps next --group g"),
    "message get": ("orders {message_id}",),
    "message at": ("orders enode-0 0 0",),
    "message find": ("orders --key k1",),
    "peek": ("orders",),
    "tail": ("orders -n 1",),
    "consume": ("printing orders -n 1 --from-first",),
    "delay list": ("orders",),
    "schedule create": ("tick --topic orders --every 1h --body now --tag red --property shop=12",),
    "schedule list": ("",),
    "schedule describe": ("tick --topic orders",),
    "schedule suspend": ("tick --topic orders",),
    "schedule resume": ("tick --topic orders",),
    "schedule delete": ("tick --topic orders",),
    "group update": ("billing --attempts 1",),
    "lag": ("billing orders", "readers"),
    "explain": ("billing orders", "billing orders {message_id}"),
    "delivery": ("billing orders --from 0",),
    "dlq list": ("billing --all",),
    "dlq show": ("billing {letter}",),
    "dlq replay": ("billing",),
    "dlq park": ("readers steps {place} --dry-run",),
    "sink list": ("",),
    "sink describe": ("orders copy",),
    "sink reset": ("orders copy",),
    "tx list": ("",),
    "tx resume": ("{transaction_id}",),
    "tx commit": ("{transaction_id}",),
    "tx rollback": ("{other_transaction_id}",),
    "clients": ("", "worker", "worker --stack"),
    "settings get": ("enode", "snode session_expiry_s"),
    "settings set": ("enode delay_max_ms=1000 --dry-run", "namesrv watchers_max=900", "namesrv --reset watchers_max"),
    "settings history": ("namesrv",),
    "top": ("-n 1",),
    "doctor": ("--patience 10",),
    "bundle": ("{file}.tar.gz",),
    "delay cancel": ("{recall_handle}",),
    "topic list": ("",),
    "topic describe": ("orders",),
    "topic trim": ("measured --before 2",),
    "topic purge": ("measured",),
    "topic update": ("orders --queues 2", "orders --publish-order enode-1:2;enode-0:2"),
    "topic offered": ("",),
    "topic adopt": ("lost",),
    "group list": ("",),
    "group describe": ("readers",),
    "group mode": ("billing", "billing orders --set any --force"),
    "group clone": ("billing audit orders",),
    "reset-offset": ("audit orders --to begin --force",),
    "enode drain": ("enode-1",),
    "enode fill": ("enode-1",),
    "enode replicas": ("",),
    "enode disks": ("",),
    "enode hand-over": ("enode-0",),
    "enode elect": ("enode-0 1",),
    "enode add": ("enode-0 3",),
    "enode remove": ("enode-0 3",),
    "enode accept-store": ("enode-0 store-2",),
    "enode forget": ("enode-1 --lose",),
    "user put": ("ann --secret-env SECRET",),
    "user list": ("",),
    "user delete": ("ann",),
    "user access": ("--topic orders --group billing",),
    "audit": ("",),
    "export": ("", "--without-enodes"),
    "apply": ("-f {file}",),
    "topic delete": ("steps",),
    "topic deleted": ("",),
    "topic undelete": ("steps",),
    "group delete": ("audit",),
    "group deleted": ("",),
    "group undelete": ("audit",),
    "profile save": ("shop --address localhost:1",),
    "profile list": ("",),
    "profile use": ("shop",),
}
"""The arguments of each command, in an order in which every command has something to print."""
WITHOUT_JSON = {"dev"}
WITHOUT_OBJECTS = {"user permissions", "role list", "role describe"}
"""Commands that print nothing for a cluster without an access file."""
OWN_NUMBERS = {"added", "groups", "in_flight", "publish_order", "replica", "queues", "removed", "slow_grace_ms"} | {
    *("leader", "proposed", "slow_messages", "successor")
}
"""Numbers of at most 32 bits that the protos name differently, or do not have."""
AMBIGUOUS = {"messages"}
"""Of 32 bits in one message of the protos; the commands count stored messages with it."""


def leaves(group: Any, before: str = "") -> Iterator[str]:
    """The words of every command."""
    for name, one in group.commands.items():
        yield from leaves(one, f"{before}{name} ") if hasattr(one, "commands") else (before + name,)


def widths() -> tuple[set[str], set[str]]:
    """The names of integers in `ortoo.v1`: those of 64 bits, and those of at most 32."""
    wide, narrow = set[str](), set[str]()

    def walk(messages: Any) -> None:
        one: Descriptor
        for one in messages:
            for field in one.fields:
                if field.cpp_type in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64):
                    wide.add(field.name)
                if field.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32):
                    narrow.add(field.name)
            walk(one.nested_types)

    for module in pkgutil.iter_modules(v1.__path__):
        if module.name.endswith("_pb2"):
            walk(importlib.import_module(f"ortoo.v1.{module.name}").DESCRIPTOR.message_types_by_name.values())
    return wide, narrow


WIDE, NARROW = widths()


def wrong_integers(value: Any, field: str = "") -> Iterator[str]:
    """The fields whose integer differs from the JSON of protobuf."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from wrong_integers(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from wrong_integers(item, field)
    elif isinstance(value, int) and not isinstance(value, bool) and field not in NARROW | OWN_NUMBERS:
        yield f"{field} is the number {value}"
    elif isinstance(value, str) and re.fullmatch(r"-?\d+", value) and field in NARROW - WIDE - AMBIGUOUS:
        yield f"{field} is the text {value}"


def typed(words: list[str]) -> list[dict[str, Any]]:
    """The output of a command for programs: an object a line, and nothing else."""
    out = io.StringIO()
    ends: tuple[type[BaseException], ...] = (SystemExit,) if words[0] == "doctor" else ()  # it may have findings
    with contextlib.redirect_stdout(out), contextlib.suppress(typer.Exit, *ends):
        app([*words, "--json"], standalone_mode=False)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert lines, words
    for line in lines:
        assert isinstance(line, dict), (words, line)
        assert list(wrong_integers(line)) == [], (words, line)
    return lines


def tell_of_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Create an enode with two replicas, a topic that the directory does not contain, a parked transaction."""
    members = tuple(ReplicaInfo(number, f"disk-{number}", "leading", epoch=3, lag_bytes=7) for number in (1, 2))

    async def found(*_: object) -> tuple[ReplicaSetInfo, ...]:
        return (ReplicaSetInfo("enode-0", "set", 1, 1, 3, 2, members),)

    async def number(*_: object) -> int:
        return 2

    async def former(*_: object) -> str:
        return "store-1"

    async def gone(*_: object, lose: bool) -> ForgottenEnode:
        return ForgottenEnode(("orders",), (), ())

    async def lost(*_: object) -> tuple[OrphanedTopic, ...]:
        return (OrphanedTopic("lost", 1 << 63, (TopicPlacement("enode-0", 4, 4),), ""),)

    async def adopted(*_: object) -> Adoption:
        return Adoption((), await lost())

    async def resumed(*_: object) -> None:
        pass

    monkeypatch.setattr(Admin, "resume_transaction", resumed)
    monkeypatch.setattr(ReplicaAdmin, "list", found)
    for method in ("transfer_leadership", "elect", "add", "remove"):
        monkeypatch.setattr(ReplicaAdmin, method, number)
    monkeypatch.setattr(ReplicaAdmin, "accept_store", former)
    monkeypatch.setattr(ReplicaAdmin, "forget", gone)
    monkeypatch.setattr(Admin, "list_orphaned_topics", lost)
    monkeypatch.setattr(Admin, "adopt_topics", adopted)


async def park_one(mq: Client) -> None:
    """Park a message of the group `billing`."""
    async with mq.pop_consumer("billing", "orders", "red", PopSettings()) as consumer:
        async with asyncio.timeout(60):
            while not (popped := await consumer.pop(wait_ms=1_000)):
                pass
        await popped[0].park(error="no such customer")


def test_every_command_is_called() -> None:
    """A new command has to be added to those whose JSON is checked."""
    assert set(leaves(typer.main.get_command(app))) == WORDS.keys() | WITHOUT_JSON | WITHOUT_OBJECTS


async def test_each_command_prints_an_object_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All objects of a command have one shape, and integers of 64 bits are strings, as in JSON of protobuf."""
    file = tmp_path / "cluster.toml"
    file.write_text('[[topic]]\nname = "new"\n\n[[group]]\nname = "billing"\nattempts = 7\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("SECRET", "the secret key of ann")
    known = {"file": str(file)}

    async def type_all(names: list[str]) -> None:
        for name in names:
            for more in WORDS[name]:
                words = f"{name} {more}".format(**known).split()
                if name in ("tail", "consume"):  # they need the signals of a process
                    outcome = await command.run(["ortoo", *words, "--json"], cluster.address)
                    assert json.loads(outcome.stdout)["offset"] == "0"
                    continue
                lines = await asyncio.to_thread(typed, words)
                for field in ("message_id", "recall_handle"):
                    known[field] = known.get(field) or lines[0].get(field) or ""
                if words[:2] == ["send", "steps"]:
                    known["place"] = "{enode} {queue_id} ".format(**lines[0]["queue"]) + lines[0]["offset"]
                if name == "dlq list":
                    known["letter"] = lines[0]["message_id"]
                if name == "tx list":
                    known["transaction_id"], known["other_transaction_id"] = (one["transaction_id"] for one in lines)

    async def undecided(message: object) -> TransactionVerdict:
        return TransactionVerdict.UNKNOWN

    names = list(WORDS)
    pause = names.index("lag")
    async with open_cluster(tmp_path, enodes=2) as cluster, connect(cluster.address, client_id="worker") as mq:
        monkeypatch.setenv("ORTOO_ADDRESS", cluster.address)
        await type_all(names[:pause])
        await park_one(mq)
        await commit(mq, "orders", "copy", "query-1", 41)
        async with (
            mq.transactional_producer("orders", "shop", undecided) as producer,
            mq.pull_consumer("readers", "steps", PullSettings(from_beginning=True)) as consumer,
        ):
            assert await consumer.poll(60_000) is not None
            for number in range(2):
                await producer.begin(Message(b"half %d" % number))
            tell_of_members(monkeypatch)
            await type_all(names[pause:])
