"""The page of settings is the code's own."""

import pytest

from tests.repo.settings_page import ROLES, page, rows
from tests.repo.tree import ROOT


def test_page_of_settings_is_up_to_date() -> None:
    """docs/reference/settings.md is what `make docs` writes."""
    assert (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("role", ROLES)
def test_every_setting_says_what_it_is(role: str) -> None:
    """No setting without a sentence."""
    missing = [name for name, _, _, text in rows(ROLES[role][1]()) if not text.endswith((".", ".)"))]
    assert missing == []
