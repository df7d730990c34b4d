"""Packages are small, have a description, import without cycles, and hold all modules but those of the root."""

from collections import Counter
from pathlib import Path

import pytest

from tests.repo.rooms_page import HOUSES, circle_in, page, reduced, uses_of
from tests.repo.tree import ROOT, Tree

FILES_MAX = 12
LINES_MAX = 400
GROWING = "/migrations/versions"
"""A folder that gets a file with each change of the database's schema, and loses none."""
AT_THE_ROOT = frozenset({"__init__", "__main__", "app", "log_events", "settings"})


def modules(tree: Tree) -> list[str]:
    """Every handwritten module of a library or service."""
    return [name for name in tree.named(".py") if "/src/ortoo/" in name]


def crowded(tree: Tree) -> list[str]:
    """Packages with too many files; `__init__` does not count."""
    counts = Counter(name.rsplit("/", 1)[0] for name in modules(tree) if not name.endswith("/__init__.py"))
    crowds = [(room, count) for room, count in sorted(counts.items()) if count > FILES_MAX]
    return [f"{room}: {count} files" for room, count in crowds if not room.endswith(GROWING)]


def lying_about(tree: Tree) -> list[str]:
    """Modules in the root of a library or service that belong in a package."""
    roots = ((name, name.split("/src/ortoo/")[1].split("/")) for name in modules(tree))
    return [name for name, parts in roots if len(parts) == 2 and parts[1].removesuffix(".py") not in AT_THE_ROOT]


def long_winded(tree: Tree) -> list[str]:
    """Modules that are too long for one idea."""
    return [f"{name}: {n} lines" for name in modules(tree) if (n := len(tree.lines(name))) > LINES_MAX]


def test_no_room_is_crowded(tree: Tree) -> None:
    """A package has at most 12 files."""
    assert crowded(tree) == []


def test_nothing_lies_about(tree: Tree) -> None:
    """The root of a distribution holds its app, its settings and packages."""
    assert lying_about(tree) == []


def test_no_module_is_long_winded(tree: Tree) -> None:
    """A module has at most 400 lines."""
    assert long_winded(tree) == []


def test_the_rules_on_rooms_fire(tmp_path: Path) -> None:
    """A thirteenth file, a module outside the packages and a 401st line are found."""
    folder = "libs/a/src/ortoo/a"
    planted = {f"{folder}/room/m{n}.py": "" for n in range(13)} | {f"{folder}/room/__init__.py": ""}
    planted |= {f"{folder}/app.py": "", f"{folder}/odd.py": "x = 1\n" * 401}
    tree = Tree.planted(tmp_path, planted)
    assert crowded(tree) == [f"{folder}/room: 13 files"]
    assert lying_about(tree) == [f"{folder}/odd.py"]
    assert long_winded(tree) == [f"{folder}/odd.py: 401 lines"]


@pytest.mark.parametrize("package", HOUSES)
def test_rooms_import_in_one_direction(package: str) -> None:
    """No packages of a distribution import one another in a cycle."""
    assert circle_in(uses_of(package)) is None


def test_a_circle_is_found_and_implied_arrows_are_left_out() -> None:
    """The search for a cycle and the reduction of arrows give the right results."""
    line = {"a": frozenset("bc"), "b": frozenset("c"), "c": frozenset[str]()}
    assert circle_in(line) is None
    assert reduced(line) == {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset()}
    assert circle_in({**line, "c": frozenset("a")}) is not None


def test_the_picture_is_that_of_the_code() -> None:
    """`docs/packages.md` is what `make docs` writes."""
    assert (ROOT / "docs/packages.md").read_text(encoding="utf-8") == page()
