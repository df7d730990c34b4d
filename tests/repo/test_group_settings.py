"""The settings of a group have the same names in the protocol, the name server, the client and the command."""

import dataclasses

import pytest

from ortoo.cli.cluster.declarations import GROUP_SETTINGS
from ortoo.client import GroupChanges, GroupInfo
from ortoo.common.directory.group import SETTINGS
from ortoo.v1 import client_pb2, topic_pb2

CREATED = {"auto_created"}
"""Recorded by the name server, and no setting of an operator."""
STORED = {"name", "version", "created_at_ms"} | CREATED


def field_names(kind: type[client_pb2.UpdateGroupRequest | topic_pb2.Group]) -> set[str]:
    """The names of a message's fields."""
    return set(kind.DESCRIPTOR.fields_by_name)


def differences(names: set[str]) -> set[str]:
    """The settings that the name server or `names` lacks."""
    return names ^ (set(SETTINGS) - CREATED)


@pytest.mark.parametrize(
    "names",
    [
        field_names(client_pb2.UpdateGroupRequest) - {"name"},
        field_names(topic_pb2.Group) - STORED,
        {field.name for field in dataclasses.fields(GroupInfo)} - STORED,
        set(GroupChanges.__annotations__),
        {setting.field for setting in GROUP_SETTINGS.values()},
    ],
    ids=["UpdateGroupRequest", "Group", "GroupInfo", "GroupChanges", "GROUP_SETTINGS"],
)
def test_each_setting_is_known_everywhere(names: set[str]) -> None:
    """A setting that one of them lacks could not be given, changed, read or declared in a file."""
    assert differences(names) == set()


def test_a_forgotten_setting_is_found() -> None:
    """The rule fires for a setting that one of them lacks, and for one that only one of them has."""
    assert differences(set(GroupChanges.__annotations__) - {"retry"} | {"note"}) == {"retry", "note"}
