"""Secrets in the name server's database."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from ortoo.common.errors import Invalid
from ortoo.namesrv.catalog.encryption import Encryption, read_encryption
from ortoo.v1 import namesrv_pb2 as pb
from ortoo.verification.servers.cluster import open_cluster

SECRET = "a-secret-that-nobody-sees"


def key_file(folder: Path, name: str) -> str:
    """A file with a key, as `openssl rand -base64 32` writes one."""
    path = folder / name
    path.write_bytes(base64.b64encode((name * 32).encode()[:31] + b"\xff") + b"\n")
    return str(path)


def shows(folder: Path, secret: str = SECRET) -> bool:
    """Whether a file of the database contains the secret in the clear."""
    return any(secret.encode() in path.read_bytes() for path in (folder / "namesrv").glob("namesrv.db*"))


async def secret_after(folder: Path, chosen: dict[str, Any], *, put: bool = False) -> str:
    """Start a name server with these settings, optionally put user `ann`; return the answer for her secret."""
    async with open_cluster(folder, enodes=0, snodes=0, settings={"namesrv": chosen}) as cluster, asyncio.timeout(60):
        if put:
            request = pb.PutUserRequest(user=pb.User(access_key="ann"), secret_key=SECRET)
            await cluster.name_service.PutUser(request)
        return (await cluster.name_service.GetUser(pb.GetUserRequest(access_key="ann"))).secret_key


async def test_secrets_are_encrypted_and_the_key_can_change(tmp_path: Path) -> None:
    """Also secrets stored in the clear before; a new key works with the old one's file, and then alone."""
    old, new = key_file(tmp_path, "old"), key_file(tmp_path, "new")
    assert await secret_after(tmp_path, {}, put=True) == SECRET
    assert shows(tmp_path)
    assert await secret_after(tmp_path, {"secrets_key_file": old}) == SECRET
    assert not shows(tmp_path)
    for chosen in ({}, {"secrets_key_file": new}):
        with pytest.raises(Invalid, match="encrypted with another key") as refused:
            await secret_after(tmp_path, chosen)
        assert refused.value.field == "secrets_key_file"
    both = {"secrets_key_file": new, "secrets_key_files_previous": f"{old};{old}"}
    assert await secret_after(tmp_path, both) == SECRET
    assert await secret_after(tmp_path, {"secrets_key_file": new}) == SECRET
    assert not shows(tmp_path)
    assert await secret_after(tmp_path, {"secrets_key_files_previous": new}) == SECRET
    assert shows(tmp_path)


async def test_a_secret_in_the_clear_is_told_once(tmp_path: Path) -> None:
    """Once at the start, when there are users and no key."""
    told = []
    for put in (True, False):
        with capture_logs() as logs:
            await secret_after(tmp_path, {}, put=put)
        told.append([line for line in logs if "secrets_unencrypted" in line["event"]])
    assert told[0] == []
    [warning] = told[1]
    assert (warning["log_level"], warning["users"]) == ("warning", 1)


async def test_a_secret_is_of_its_user_alone(tmp_path: Path) -> None:
    """With write access to the database but without the key, an attacker cannot give himself another user's secret."""
    chosen = {"secrets_key_file": key_file(tmp_path, "key")}
    await secret_after(tmp_path, chosen, put=True)
    with sa.create_engine(f"sqlite:///{tmp_path / 'namesrv' / 'namesrv.db'}").begin() as connection:
        connection.execute(sa.text("INSERT INTO users SELECT 'eve', enabled, created_at_ms, kept_secret FROM users"))
    with pytest.raises(Invalid, match="has the secret of ann in the place of the secret of eve"):
        await secret_after(tmp_path, chosen)


@pytest.mark.parametrize("text", [b"", b"short", b"A" * 44])
def test_what_is_no_key_is_refused(text: bytes, tmp_path: Path) -> None:
    """The setting, the file, and the way to make a key are named."""
    path = tmp_path / "key"
    path.write_bytes(text)
    for field, files in (("secrets_key_file", (str(path), "")), ("secrets_key_files_previous", ("", str(path)))):
        with pytest.raises(Invalid, match="openssl rand -base64 32") as refused:
            read_encryption(*files)
        assert refused.value.field == field
    with pytest.raises(Invalid, match="cannot be read"):
        read_encryption(str(tmp_path / "absent"), "")


def test_what_is_encrypted_is_the_same_never_again() -> None:
    """Equal secrets of two users cannot be recognized; with the key both can be read."""
    encryption = Encryption(base64.b64encode(bytes(32)))
    first, second = encryption.encrypt("ann", SECRET), encryption.encrypt("bob", SECRET)
    assert first != second != encryption.encrypt("bob", SECRET)
    assert (encryption.decrypt("ann", first), encryption.decrypt("bob", second)) == (SECRET, SECRET)
