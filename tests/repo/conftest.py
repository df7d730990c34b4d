"""The repository, read once for all its rules."""

import pytest

from tests.repo.tree import ROOT, Tree


@pytest.fixture(scope="session")
def tree() -> Tree:
    """Every file of this repository that is, or is about to be, committed."""
    return Tree.of_git(ROOT)
