"""The data folder of an enode, without replicas or as a replica."""

from pathlib import Path

import pytest

from ortoo.common.errors import Invalid
from ortoo.enode.app import open_enode
from ortoo.enode.settings import EnodeSettings


@pytest.mark.parametrize("replica_listen_address", ["", "127.0.0.1:0"])
async def test_a_folder_that_cannot_be_made_is_named(replica_listen_address: str, tmp_path: Path) -> None:
    """There is a file at the path of the folder."""
    (tmp_path / "file").touch()
    settings = EnodeSettings(
        name="enode-0", data_dir=tmp_path / "file" / "data", replica_listen_address=replica_listen_address
    )
    with pytest.raises(Invalid, match="file/data: File exists") as refused:
        async with open_enode(settings):
            pass
    assert refused.value.field == "data_dir"
