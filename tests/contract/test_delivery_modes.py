"""A group's first use of a topic decides its delivery mode, also over crashes; an operator may change it."""

import os
import subprocess
import sys

import pytest

from ortoo.common.errors import Conflict
from ortoo.enode.changes.groups import GroupMode
from ortoo.enode.store.lock_table import LockRequest
from tests.contract.one_store import TOPIC
from tests.contract.pop_store import GROUP, PopStore, play, texts


def test_a_second_mode_is_refused_with_what_to_do() -> None:
    """Pop together with offsets, and ordered together with unordered, are refused, also after a crash."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        popped = await it.pop()
        await it.ack(popped)
        await it.crash()
        with pytest.raises(Conflict, match=r"consumes topic orders by pop.*ortoo group mode billing orders --set offs"):
            await it.store.modes.use(TOPIC, GROUP, GroupMode.OFFSETS)
        with it.store.modes.decide([(TOPIC, GROUP), (TOPIC, "other")], GroupMode.OFFSETS) as (_, refused):
            assert set(refused) == {(TOPIC, GROUP)}
        with pytest.raises(Conflict, match="in the order of message groups"):
            await it.pop(in_order=True)
        await it.store.offsets.reset(TOPIC, GROUP, {0: 0})  # an operator may move a group that pops
        assert texts(await it.pop()) == ["a"]

    play(scenario)


def test_an_operator_changes_the_mode_of_an_idle_group() -> None:
    """Not while a group member has messages or a queue, unless forced; the group continues at its position."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b")
        popped = await it.pop(1)
        with pytest.raises(Conflict, match="have 1 messages and 0 queues of orders"):
            await it.leasing.change_mode(TOPIC, GROUP, GroupMode.OFFSETS, force=False)
        await it.ack(popped)
        assert await it.leasing.change_mode(TOPIC, GROUP, GroupMode.OFFSETS, force=False) is GroupMode.POP
        assert it.store.offsets.of(TOPIC, GROUP) == {0: 1, 1: 0, 2: 0}
        with pytest.raises(Conflict):
            await it.pop()
        await it.store.locks.take([LockRequest((TOPIC, GROUP, 0), "c", "s", "")])
        with pytest.raises(Conflict, match="0 messages and 1 queues"):
            await it.leasing.change_mode(TOPIC, GROUP, GroupMode.UNDECIDED, force=False)
        await it.leasing.change_mode(TOPIC, GROUP, GroupMode.UNDECIDED, force=True)
        await it.crash()
        assert texts(await it.pop()) == ["b"]

    play(scenario)


def test_what_is_written_does_not_depend_on_hashes() -> None:
    """Many simultaneous first uses are written in one order, for any PYTHONHASHSEED."""
    written = [
        subprocess.run(
            [sys.executable, "-c", _FIRST_USES],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert written[0] == written[1] != ""


_FIRST_USES = """
from types import SimpleNamespace
from ortoo.enode.changes.groups import GroupMode
from ortoo.enode.store.delivery_modes import GroupDeliveryModes

state = SimpleNamespace(
    modes=SimpleNamespace(of=lambda *_: GroupMode.UNDECIDED),
    topics=SimpleNamespace(get=lambda _: SimpleNamespace(name="t"))
)
engine = SimpleNamespace(committer=SimpleNamespace(on_applied=[]), state=state)
pairs = {(1, f"g{number}") for number in range(20)}
with GroupDeliveryModes(engine).decide(pairs, GroupMode.POP) as (changes, refused):
    print(changes)
"""
