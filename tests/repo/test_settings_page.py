"""The page of settings matches the code."""

import pytest

from tests.repo.settings_page import ROLES, page, rows
from tests.repo.tree import ROOT


def test_page_of_settings_is_up_to_date() -> None:
    """docs/reference/settings.md is the output of `make docs`."""
    assert (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("role", ROLES)
def test_every_setting_says_what_it_is(role: str) -> None:
    """Every setting has a description."""
    missing = [name for name, _, _, text in rows(ROLES[role][1]()) if not text.endswith((".", ".)"))]
    assert missing == []
