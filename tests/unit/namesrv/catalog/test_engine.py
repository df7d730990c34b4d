"""The location of the directory's database."""

from pathlib import Path

import pytest

from ortoo.common.errors import Invalid
from ortoo.namesrv.catalog.engine import database_url_of


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///file:x?mode=memory"])
def test_a_database_in_memory_is_refused(url: str, tmp_path: Path) -> None:
    """With a database in memory the directory would lose every topic, also after a restore."""
    with pytest.raises(Invalid, match="file on disk") as refused:
        database_url_of(url, tmp_path)
    assert refused.value.field == "database_url"


def test_a_database_that_is_a_file_is_taken(tmp_path: Path) -> None:
    """The configured URL, or a file in the folder."""
    assert database_url_of(f"sqlite:///{tmp_path}/own.db", tmp_path).database == f"{tmp_path}/own.db"
    assert database_url_of("", tmp_path).database == f"{tmp_path}/namesrv.db"
