"""RocketMQ's roles among the replicas of an enode, as processes report them."""

import tomllib
from typing import Any

import pytest

from ortoo.common.process.service import EXIT_INVALID_SETTINGS
from tests.e2e.test_process_front import outcome

MEMBER = {"ORTOO_ENODE_REPLICA_LISTEN_ADDRESS": "127.0.0.1:8191"}


async def shown(**settings: str) -> dict[str, Any]:
    """The settings that `-p` prints for a replica with these settings."""
    environ = MEMBER | {f"ORTOO_ENODE_{name.upper()}": value for name, value in settings.items()}
    code, text, said = await outcome("enode", "-p", environ=environ)
    assert code == 0, said
    return tomllib.loads(text)


@pytest.mark.parametrize("role", ["SLAVE", "SYNC_MASTER"])
async def test_a_role_of_several_needs_to_be_a_member(role: str) -> None:
    """SLAVE and SYNC_MASTER need other replicas: without an address for them the process ends with 253 (E-007)."""
    code, _, said = await outcome("enode", environ={"ORTOO_ENODE_ROLE": role})
    assert code == EXIT_INVALID_SETTINGS
    assert f"replica_listen_address: a {role} is a replica, and needs an address for the other replicas" in said


async def test_a_slave_takes_less_memory() -> None:
    """`-p` shows a memory share of 30 % for a SLAVE, 40 % for a master, and a configured value unchanged (E-012)."""
    shares = [
        (await shown(**chosen))["memory_share_percent"]
        for chosen in ({}, {"role": "SLAVE"}, {"role": "SLAVE", "memory_share_percent": "40"})
    ]
    assert shares == [40, 30, 40]


async def test_roles_and_durability_say_the_same() -> None:
    """E-221: a SYNC_MASTER waits for a majority, an ASYNC_MASTER for its own disk. The default is SYNC_MASTER."""
    said = {role: (await shown(role=role))["durability"] for role in ("SYNC_MASTER", "ASYNC_MASTER")}
    assert said == {"SYNC_MASTER": "replicas", "ASYNC_MASTER": "leader"}
    roles = {one: (await shown(durability=one))["role"] for one in ("replicas", "leader")}
    assert roles == {"replicas": "SYNC_MASTER", "leader": "ASYNC_MASTER"}
    default = await shown()
    assert (default["role"], default["durability"]) == ("SYNC_MASTER", "replicas")
    wrong = MEMBER | {"ORTOO_ENODE_ROLE": "SYNC_MASTER", "ORTOO_ENODE_DURABILITY": "leader"}
    code, _, words = await outcome("enode", environ=wrong)
    assert code == EXIT_INVALID_SETTINGS
    assert "SYNC_MASTER means replicas: give one of the two" in words
