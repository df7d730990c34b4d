"""Each planted bug can be planted in the code of today, and replaces code that exists."""

import ast
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType

import pytest

from tests.simulation.planted.table import MODULES

PROGRAM = """
from tests.simulation.planted.table import planted

for name, (where, plant) in planted().items():
    try:
        plant()
    except Exception as error:
        print(where, repr(error))
"""


def test_each_planted_bug_changes_code_that_exists() -> None:
    """A bug that names a removed function cannot be planted, so that it proves nothing. In a process of its own."""
    planting = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (planting.returncode, planting.stdout) == (0, ""), planting.stderr


def missing_targets(source: str, names: Mapping[str, object]) -> Iterator[str]:
    """The attributes of modules and classes that the code assigns, and that do not exist before."""
    for node in ast.walk(ast.parse(source)):
        for target in node.targets if isinstance(node, ast.Assign) else []:
            path: list[str] = []
            at: ast.expr = target
            while isinstance(at, ast.Attribute):
                path.insert(0, at.attr)
                at = at.value
            if not path or not isinstance(at, ast.Name) or at.id not in names:
                continue  # an attribute of a local value
            owner = names[at.id]
            for name in path:
                if not hasattr(owner, name):
                    yield f"{ast.unparse(target)} (line {target.lineno})"
                    break
                owner = getattr(owner, name)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_each_planted_bug_replaces_something(module: ModuleType) -> None:
    """An assignment to a new attribute changes nothing, so that the bug is not planted."""
    module = importlib.import_module(module.__name__)
    assert list(missing_targets(inspect.getsource(module), vars(module))) == []


def test_a_bug_without_a_target_is_noticed() -> None:
    """The check above fails for an attribute that does not exist, in a class or a module."""
    source = "def plant():\n    table.MODULES = ()\n    table.NO_SUCH_NAME = 1\n    table.planted.gone = 2\n"
    names = {"table": importlib.import_module("tests.simulation.planted.table")}
    assert list(missing_targets(source, names)) == ["table.NO_SUCH_NAME (line 3)", "table.planted.gone (line 4)"]
