"""`ortoo apply` and `ortoo export`: the differences, and mistakes that are refused before any change."""

from pathlib import Path

import pytest

from ortoo.cli.cluster.declarations import GROUP_SETTINGS, Entry, as_toml, plan_changes, read_declarations
from ortoo.client import Invalid
from ortoo.common.directory.group import Group
from ortoo.namesrv.decisions.groups import with_defaults

TOPIC: Entry = {"name": "orders", "queues": 4, "permission": "read_write", "type": "fifo"}
GROUP: Entry = {"name": "billing", "consume": True, "attempts": 16, "retry": "list:1000,5000", "in_flight": 0,
                "park_expired": False, "slow_messages": 1024, "slow_grace_ms": 10_000,
                "lite_exclusive": False}  # fmt: skip
PRESENT: dict[str, list[Entry]] = {"topic": [TOPIC], "group": [GROUP]}


def said(tmp_path: Path, text: str) -> dict[str, list[Entry]]:
    """The entries of a file with this text."""
    file = tmp_path / "declared.toml"
    file.write_text(text)
    return read_declarations(file)


def test_what_was_exported_changes_nothing(tmp_path: Path) -> None:
    """The output of export is valid input of apply and changes nothing."""
    declared = said(tmp_path, as_toml(PRESENT))
    assert declared == PRESENT
    assert plan_changes(declared, PRESENT) == []


def test_only_what_differs_is_changed(tmp_path: Path) -> None:
    """A new topic, more queues and another number of attempts are one line each; the others are unchanged."""
    text = '[[topic]]\nname="new"\nqueues=2\n[[topic]]\nname="orders"\nqueues=8\n[[group]]\nname="billing"\nattempts=5'
    changes = plan_changes(said(tmp_path, text), PRESENT)
    assert list(map(str, changes)) == [
        "+ topic new: queues 2", "~ topic orders: queues 4 → 8", "~ group billing: attempts 16 → 5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[[topics]]\nname='t'", "topics"),
        ("[[topic]]\nqueues=4", "topic[0].name"),
        ("[[topic]]\nname='t'\nqueue=4", "topic[0].queue"),
        ("[[topic]]\nname='t'\nqueues='4'", "topic[0].queues"),
        ("[[group]]\nname='g'\nconsume=1", "group[0].consume"),
        ("[[group]]\nname='g'\n[[group]]\nname='g'", "group[1].name"),
        ("[[topic]]\nname=", "file"),
        ("[[topic]]\nname='orders'\nqueues=2", "queues"),
        ("[[topic]]\nname='orders'\ntype='any'", "type"),
        ("[[topic]]\nname='t'\npermission='rw'", "topic[0].permission"),
        ("[[topic]]\nname='t'\ntype='first'", "topic[0].type"),
        ("[[topic]]\nname='t'\nenodes=[1]", "topic[0].enodes"),
        ("[[topic]]\nname='t'\npublish_order=['enode-0']", "topic[0].publish_order"),
        ("[[group]]\nname='g'\nretry='soon'", "group[0].retry"),
        ("[[user]]\nname='ann'", "user[0].access_key"),
        ("[[schedule]]\nname='s'\nevery='1s'", "schedule[0].topic"),
        ("[[schedule]]\nname='s'\ntopic='t'", "schedule[0].cron"),
        ("[[schedule]]\nname='s'\ntopic='t'\nevery='often'", "schedule[0].every"),
        ("[[schedule]]\nname='s'\ntopic='t'\nevery='1s'\nbody='a'\nbody_base64='YQ=='", "schedule[0].body"),
        ("[[schedule]]\nname='s'\ntopic='t'\nevery='1s'\nbody_base64='?'", "schedule[0].body_base64"),
    ],
)
def test_what_is_wrong_is_named_before_anything_is_done(tmp_path: Path, text: str, field: str) -> None:
    """Unknown keys, wrong types, repeated names, fewer queues and another type are Invalid, with their position."""
    with pytest.raises(Invalid) as raised:
        plan_changes(said(tmp_path, text), PRESENT)
    assert raised.value.field == field


FULL: dict[str, list[Entry]] = {
    "topic": [{"name": "orders", "queues": 4, "write_queues": 4, "permission": "read_write", "type": "fifo",
               "lite_ttl_ms": 0, "enodes": ["enode-0"], "publish_order": []}],
    "group": [{**GROUP, "retry": "list:1000,5000", "unacknowledged_bytes": 64 << 20}],
    "user": [{"access_key": "ann", "enabled": True}],
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        '[[topic]]\nname="orders"\nqueues=0\nwrite_queues=0\nlite_ttl_ms=0\nenodes=[]\npublish_order=[]',
        '[[group]]\nname="billing"\nattempts=0\nslow_messages=0\nunacknowledged_bytes=0\nin_flight=0\nretry="list:1s,5s"',
        '[[group]]\nname="billing"\nretry="list:1000ms,5000"',
        '[[user]]\naccess_key="ann"\nenabled=true\nsecret_env="ANN"',
        '[[user]]\naccess_key="ann"',
    ],
)
def test_other_forms_of_the_same_value_are_no_change(tmp_path: Path, text: str) -> None:
    """Zero stands for a default, delays have units, and the secret of an existing user is not compared."""
    assert plan_changes(said(tmp_path, text), FULL) == []


def test_zero_stands_for_the_default_of_the_name_server() -> None:
    """The command and the name server agree on each default."""
    stored = with_defaults(Group("g", 0, slow_consumer_grace_ms=0))
    for one in GROUP_SETTINGS.values():
        if one.kind is int:
            assert getattr(stored, one.field) == one.default, one.field


def test_placements_and_users_are_added(tmp_path: Path) -> None:
    """A topic gets further enodes and keeps the others. A new user needs a variable with its secret."""
    text = '[[topic]]\nname="orders"\nenodes=["enode-1"]\nwrite_queues=2\n'
    text += '[[user]]\naccess_key="ann"\nenabled=false\n[[user]]\naccess_key="bob"\nsecret_env="BOB"'
    assert list(map(str, plan_changes(said(tmp_path, text), FULL))) == [
        "~ topic orders: enodes ['enode-0'] → ['enode-0', 'enode-1'], write_queues 4 → 2",
        "~ user ann: enabled True → False",
        "+ user bob: secret_env 'BOB'",
    ]
    with pytest.raises(Invalid) as raised:
        plan_changes(said(tmp_path, '[[user]]\naccess_key="bob"'), FULL)
    assert raised.value.field == "user[0].secret_env"
