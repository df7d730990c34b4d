"""Tests wait for events, state their promise, and lie in the expected folders."""

import ast
from pathlib import Path

from tests.repo.tree import Tree

SLEEPERS = frozenset({"time", "asyncio", "anyio", "trio", "gevent"})
KINDS = frozenset(
    {
        "unit",
        "property",
        "contract",
        "conformance",
        "console",
        "golden",
        "integration",
        "e2e",
        "official",
        "repo",
        "spark",
        "deploy",
        "simulation",
        "install",
    }
)


def sleeps(tree: Tree) -> list[str]:
    """Places in tests that wait for time to pass instead of for an event."""
    return [
        f"{name}:{node.lineno}"
        for name in tree.named(".py", below="tests/")
        if "sleep" in (text := tree.text(name))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute | ast.ImportFrom) and _sleeps(node)
    ]


def _sleeps(node: ast.Attribute | ast.ImportFrom) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module in SLEEPERS and any(alias.name == "sleep" for alias in node.names)
    return node.attr == "sleep" and isinstance(node.value, ast.Name) and node.value.id in SLEEPERS


def homeless(tree: Tree) -> list[str]:
    """Tests outside the folders that `make check` and `make test` run."""
    return [
        name
        for name in tree.named(".py")
        if name.rsplit("/", 1)[-1].startswith("test_")
        and not name.startswith("examples/")  # tests of applications, which tests/e2e runs
        and not (name.startswith("tests/") and name.split("/")[1] in KINDS)
    ]


def packaged(tree: Tree) -> list[str]:
    """`__init__.py` files in tests, which importlib mode does not want."""
    return list(tree.named("__init__.py", below="tests/"))


def wordless(tree: Tree) -> list[str]:
    """Test functions without a docstring."""
    return [
        f"{name}: {node.name}"
        for name in tree.named(".py", below="tests/")
        if "def test_" in (text := tree.text(name))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]


def test_no_test_sleeps(tree: Tree) -> None:
    """A test waits for its event and never for a fixed time."""
    assert sleeps(tree) == []


def test_the_sleep_rule_fires(tmp_path: Path) -> None:
    """Sleeps are found in both spellings; a virtual clock's sleep is allowed."""
    planted = {
        "tests/unit/test_a.py": "import time\ntime.sleep(1)\n",
        "tests/unit/test_b.py": "from asyncio import sleep\n",
        "tests/unit/test_c.py": "async def f(clock): await clock.sleep(1)\n",
    }
    assert sleeps(Tree.planted(tmp_path, planted)) == ["tests/unit/test_a.py:2", "tests/unit/test_b.py:1"]


def test_every_test_is_run(tree: Tree) -> None:
    """A test lies in one of the folders that the daily loop runs."""
    assert homeless(tree) == []


def test_the_rule_on_places_fires(tmp_path: Path) -> None:
    """Tests beside the code and in unknown folders are found."""
    planted = {"libs/x/test_a.py": "", "tests/odd/test_b.py": "", "tests/unit/test_c.py": ""}
    assert homeless(Tree.planted(tmp_path, planted)) == ["libs/x/test_a.py", "tests/odd/test_b.py"]


def test_tests_are_no_package(tree: Tree) -> None:
    """Two test files may have one name, because no folder of tests is a package."""
    assert packaged(tree) == []


def test_the_rule_on_packages_fires(tmp_path: Path) -> None:
    """An `__init__.py` is found."""
    assert packaged(Tree.planted(tmp_path, {"tests/unit/__init__.py": ""})) == ["tests/unit/__init__.py"]


def test_every_test_says_its_promise(tree: Tree) -> None:
    """Each test function has a docstring."""
    assert wordless(tree) == []


def test_the_rule_on_promises_fires(tmp_path: Path) -> None:
    """A test without a sentence is found; a helper without one is not."""
    planted = {"tests/unit/test_a.py": "async def test_x(): pass\ndef y(): pass\n"}
    assert wordless(Tree.planted(tmp_path, planted)) == ["tests/unit/test_a.py: test_x"]
