"""The data folder of an enode, without replicas or as a replica."""

from pathlib import Path
from typing import Any

import pytest

from ortoo.common.errors import Invalid
from ortoo.enode.app import open_enode
from ortoo.enode.leadership.running_replica import open_replica
from ortoo.enode.settings import EnodeSettings


@pytest.mark.parametrize("opened", [open_enode, open_replica])
async def test_a_folder_that_cannot_be_made_is_named(opened: Any, tmp_path: Path) -> None:
    """There is a file at the path of the folder."""
    (tmp_path / "file").touch()
    settings = EnodeSettings(
        name="enode-0", data_dir=tmp_path / "file" / "data", replicas=1, replica=1, replica_listen_address="127.0.0.1:0"
    )
    with pytest.raises(Invalid, match="file/data: File exists") as refused:
        async with opened(settings):
            pass
    assert refused.value.field == "data_dir"
