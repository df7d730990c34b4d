"""Code examples compile where they are public, and the names of Ortoo in them exist, in docstrings and documents."""

import ast
import doctest
import importlib
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest

import ortoo.client
from ortoo.common.groups.failure_rule import FailureRule
from tests.repo.example_names import inline_calls, unknown_argument, unknown_classes, unknown_results, wrong_names
from tests.repo.prose import FENCE
from tests.repo.tree import Tree

PACKAGES = ("libs/client/src/ortoo/client/", "libs/spark/src/ortoo/spark/")
INDENTED = re.compile(r"(?:^ {4}.*\n(?:[ \t]*\n)*)+", re.MULTILINE)
FENCED = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
CLIENT = {name: getattr(ortoo.client, name) for name in ortoo.client.__all__}
OPENED = "async with connect('address') as mq, mq.producer('topic') as producer: pass\n"
"""The first lines of examples that show a single call."""
OTHER_CLIENTS = "docs/migrating/"
"""There examples have the names of Ortoo that they import, because other clients have the same names."""
APPLICATION = ("Order", "Bank")
"""Classes of the applications in examples."""
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


def wrong_in(source: str, known: Mapping[str, Any], opened: str = OPENED) -> list[str]:
    """The names that do not exist in an example; a block that is not Python has none."""
    try:
        return [*wrong_names(opened + source, known), *unknown_results(source, known)]
    except SyntaxError:
        return []


def wrong_in_document(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Each wrong name in the blocks and the inline code of a page."""
    known, opened = ({}, "") if name.startswith(OTHER_CLIENTS) else (CLIENT, OPENED)
    prose = FENCE.sub("", text)
    blocks = [*FENCED.findall(text), *(textwrap.dedent(block) for block in INDENTED.findall(prose))]
    inline = (call for code in INLINE.findall(prose) for call in inline_calls(code))
    for example in (*blocks, *inline):
        yield from ((name, problem) for problem in wrong_in(example, known, opened))


def wrong_in_docstrings(
    source: str, imported: Callable[[], Mapping[str, Any]], *, is_public: bool = False
) -> Iterator[tuple[str, str]]:
    """Each wrong name in the examples and the inline code of a module's docstrings."""
    module = ast.parse(source)
    known: Mapping[str, Any] | None = None
    names = {word for node in ast.walk(module) for word in _names(node)}
    for node in ast.walk(module):
        if isinstance(node, Documented) and (docstring := ast.get_docstring(node, clean=False)):
            where = getattr(node, "name", "module")
            inline = INLINE.findall(docstring)
            calls = (call for code in inline for call in inline_calls(code))
            blocks = list(examples(docstring, node.body[0].col_offset))
            for example in (*blocks, *calls):
                known = {**CLIENT, "ortoo": ortoo, **imported()} if known is None else known
                yield from ((where, problem) for problem in wrong_in(example, known))
            for example in blocks if is_public else ():
                defined = {*(known or ()), *APPLICATION}
                yield from ((where, problem) for problem in unknown_classes(example, defined))
            yield from ((where, problem) for code in inline for problem in unknown_argument(code, names))


def _names(node: ast.AST) -> Iterator[str]:
    for field in ("id", "attr", "arg", "name"):
        if isinstance(name := getattr(node, field, None), str):
            yield name
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
        yield node.value


def names_of(path: str) -> Mapping[str, Any]:
    """The definitions and imports of a module; none if one of its libraries is not installed."""
    try:
        return vars(importlib.import_module(path.split("/src/")[1][:-3].replace("/", ".").removesuffix(".__init__")))
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ortoo"):
            raise
        return {}


@pytest.mark.parametrize("package", PACKAGES)
def test_examples_compile(tree: Tree, package: str) -> None:
    """Each example is a complete piece of code, so that it can be copied from `help()`."""
    files = [name for name in tree.names if name.startswith(package) and name.endswith(".py")]
    assert [(name, problem) for name in files for problem in broken(tree.text(name))] == []


def test_names_in_docstrings_exist(tree: Tree) -> None:
    """Attributes and arguments of Ortoo in examples and inline code are those of the code."""
    assert [
        (name, *problem)
        for name in tree.named(".py")
        if name.startswith(("libs/", "services/")) and "/src/ortoo/" in name and not name.endswith("__main__.py")
        for problem in wrong_in_docstrings(
            tree.text(name), partial(names_of, name), is_public=name.startswith(PACKAGES)
        )
    ] == []


def test_names_in_documents_exist(tree: Tree) -> None:
    """The same for every page."""
    pages = tree.named(".md")
    assert [problem for name in pages for problem in wrong_in_document(name, tree.text(name))] == []


def test_the_client_shows_a_program() -> None:
    """`help(ortoo.client)` has an example."""
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


@pytest.mark.parametrize(
    ("example", "problem"),
    [
        ("from ortoo.client import Sender", "ortoo.client has no attribute 'Sender'"),
        ("import ortoo.client.sending", "there is no module ortoo.client.sending"),
        ("RetryLater(counts=False)", "RetryLater() has no argument 'counts'"),
        ("RetryLater(1, 2, 3)", "RetryLater() has 2 positional arguments, not 3"),
        ("FailureRule(3).after(1)", "FailureRule has no attribute 'after'"),
        ("FailureRule(3).after_attempt(1)  # Again(delay_ms=1)", "there is no Again"),
        ("rule = FailureRule(3)\nrule.attempts", "FailureRule has no attribute 'attempts'"),
        ("await mq.admin.make_topic('t')", "Admin has no attribute 'make_topic'"),
        (
            "async with mq.pop_consumer('g', 't') as c:\n    for m in await c.pop(1):\n        m.tags",
            "PoppedMessage has",
        ),
        ("async def f(message: Message):\n    print(message.text)", "Message has no attribute 'text'"),
    ],
)
def test_a_name_that_does_not_exist_is_found(example: str, problem: str) -> None:
    """In imports, calls, attributes and results in comments, by the type of a call, block, loop or parameter."""
    (found,) = wrong_in(example, {**CLIENT, "FailureRule": FailureRule})
    assert found.startswith(problem)


def test_a_class_without_a_definition_is_found() -> None:
    """A public example can be copied: its classes are imported, defined in it, or those of the module."""
    example = '"""Begin.\n\n    def check(order: Order) -> %s: ...\n"""\n'
    assert [one for _, one in wrong_in_docstrings(example % "Verdict", dict, is_public=True)] == ["there is no Verdict"]
    assert list(wrong_in_docstrings(example % "Message", dict, is_public=True)) == []


def test_a_stale_argument_in_a_docstring_is_found() -> None:
    """In inline code: as an argument alone, in a call, and in the docstring of `__init__`."""
    for code in ("counts=False", "RetryLater(counts=False)"):
        source = f'class Later:\n    def __init__(self, count_attempt):\n        """With `{code}` it waits."""\n'
        assert len(list(wrong_in_docstrings(source, dict))) == 1
        assert list(wrong_in_docstrings(source.replace("counts=", "count_attempt="), dict)) == []
