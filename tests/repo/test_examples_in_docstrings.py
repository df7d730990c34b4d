"""Code examples in the docstrings of the public modules and classes of the client and of Spark compile."""

import ast
import doctest
import re
import textwrap
from collections.abc import Iterator

import pytest

from tests.repo.tree import Tree

PACKAGES = ("libs/client/src/ortoo/client/", "libs/spark/src/ortoo/spark/")
INDENTED = re.compile(r"(?:^ {4}.*\n(?:[ \t]*\n)*)+", re.MULTILINE)
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def examples(docstring: str, indentation: int = 0) -> Iterator[str]:
    """The blocks of a docstring that are indented by four more spaces than its quotes, and the lines after `>>>`."""
    first, *lines = docstring.split("\n")
    text = "\n".join([first, *(line[indentation:] for line in lines)]) + "\n"
    for block in INDENTED.findall(text):
        if not block.lstrip().startswith(">>>"):
            yield textwrap.dedent(block)
    yield from (one.source for one in doctest.DocTestParser().get_examples(text))


def documented(source: str) -> Iterator[tuple[str, str, int]]:
    """Name, docstring and its indentation, of a module, its public functions and classes, and their methods."""
    module = ast.parse(source)
    nodes: list[tuple[str, Documented]] = [("", module)]
    outers: list[ast.Module | ast.ClassDef] = [
        module,
        *(node for node in module.body if isinstance(node, ast.ClassDef)),
    ]
    for outer in outers:
        inner = (node for node in outer.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef))
        nodes.extend((node.name, node) for node in inner if not node.name.startswith("_"))
    for name, body in nodes:
        if docstring := ast.get_docstring(body, clean=False):
            yield name, docstring, body.body[0].col_offset


def broken(source: str) -> list[str]:
    """The examples of a module that do not compile, each with the name of its object and the error."""
    found = []
    for name, docstring, indentation in documented(source):
        for example in examples(docstring, indentation):
            try:
                compile(example, "example", "exec")
            except SyntaxError as error:
                found.append(f"{name or 'module'}: {error}")
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_examples_compile(tree: Tree, package: str) -> None:
    """Each example is a complete piece of code, so that it can be copied from `help()`."""
    files = [name for name in tree.names if name.startswith(package) and name.endswith(".py")]
    assert [(name, problem) for name in files for problem in broken(tree.text(name))] == []


def test_the_client_shows_a_program() -> None:
    """`help(ortoo.client)` has an example."""
    import ortoo.client

    assert list(examples(ortoo.client.__doc__ or ""))


@pytest.mark.parametrize(
    "docstring",
    [
        "Sends.\n\n    async with connect() as mq:\n        pass\n",
        "Sends.\n\n>>> async with connect() as mq:\n...     pass\n",
    ],
)
def test_an_example_that_does_not_compile_is_found(docstring: str) -> None:
    """`async with` outside a function, as an indented block and after `>>>`."""
    assert len(broken(f'"""{docstring}"""\n')) == 1
    assert len(broken(f'class A:\n    """{textwrap.indent(docstring, "    ").lstrip()}    """\n')) == 1
    assert broken('"""Text.\n\n    x = 1\n\n    y = 2\n"""\n') == []
