"""The names of Ortoo in an example, compared with the code: attributes and arguments that do not exist.

    >>> wrong_names("RetryLater(counts=False)", {"RetryLater": RetryLater})
    ["RetryLater() has no argument 'counts'"]

Types follow from annotations, as far as they are simple. An expression of unknown type is not checked.
"""

import ast
import builtins
import contextlib
import importlib
import inspect
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import ortoo.client

Value = Any
"""A module, class or function; an `Instance` or `Items`; None = unknown."""
OURS = ("ortoo", "apache.rocketmq")


@dataclass(frozen=True)
class Instance:
    """An object of a class."""

    kind: type


@dataclass(frozen=True)
class Items:
    """An iterator or a context manager, with the value that a loop or a block gets from it."""

    item: Value


@dataclass(frozen=True)
class Method:
    """A method of an object."""

    function: Any
    owner: Instance


def wrong_names(source: str, known: Mapping[str, Value]) -> list[str]:
    """The names that do not exist in an example; `known` are the names that it need not import."""
    example = _Example(dict(known))
    for statement in parsed(source).body:
        example.run(statement)
    return list(dict.fromkeys(example.problems))


def parsed(source: str) -> ast.Module:
    """The syntax tree; `await` is allowed outside functions. Errors: SyntaxError."""
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return typing.cast(ast.Module, compile(source, "example", "exec", flags=flags))


class _Example:
    def __init__(self, scope: dict[str, Value]) -> None:
        self.problems: list[str] = []
        self._scope = scope

    def run(self, node: ast.AST) -> None:
        """Check a statement and what is in it, in order."""
        match node:
            case ast.Import() | ast.ImportFrom():
                self._import(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._run_function(node)
            case ast.ClassDef():
                self._scope[node.name] = None
                self._run_all(node.decorator_list, node.bases, node.body)
            case ast.Assign() | ast.NamedExpr():
                value = self._value(node.value)
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self._bind(target, value)
            case ast.AnnAssign():
                self._bind(node.target, self._annotated(node.annotation))
                self._run_all([node.value] if node.value else [])
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    entered = _entered(self._value(item.context_expr))
                    if item.optional_vars is not None:
                        self._bind(item.optional_vars, entered)
                self._run_all(node.body)
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                self._bind(node.target, _item(self._value(node.iter)))
                self._run_all(*((node.ifs,) if isinstance(node, ast.comprehension) else (node.body, node.orelse)))
            case ast.expr():
                self._value(node)
            case _:
                self._run_all(ast.iter_child_nodes(node))

    def _run_all(self, *parts: Any) -> None:
        for part in parts:
            for node in part:
                self.run(node)

    def _run_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._scope[node.name] = None
        self._run_all(node.decorator_list)
        outer, self._scope = self._scope, dict(self._scope)
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            if argument.annotation is not None:
                self._scope[argument.arg] = self._annotated(argument.annotation)
        self._run_all(node.body)
        self._scope = outer

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            module = alias.name if isinstance(node, ast.Import) else node.module or ""
            value: Value = None
            if module.startswith(OURS):
                value = self._module(module)
                if isinstance(node, ast.ImportFrom) and value is not None:
                    value = self._member(value, alias.name)
                elif isinstance(node, ast.Import) and alias.asname is None:
                    value = self._module(module.partition(".")[0])
            self._scope[alias.asname or alias.name.partition(".")[0]] = value

    def _module(self, name: str) -> Value:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith(OURS) and not name.startswith("ortoo.spark"):
                self.problems.append(f"there is no module {name}")
            return None

    def _submodule(self, package: types.ModuleType, name: str) -> Value:
        try:
            return importlib.import_module(f"{package.__name__}.{name}")
        except ModuleNotFoundError as error:
            if (error.name or "").startswith(OURS):
                self.problems.append(f"{package.__name__} has no attribute {name!r}")
            return None

    def _bind(self, target: ast.AST, value: Value) -> None:
        if isinstance(target, ast.Name):
            self._scope[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._bind(part, _item(value))
        else:
            self.run(target)

    def _annotated(self, node: ast.expr) -> Value:
        kind = self._value(node)
        return Instance(kind) if isinstance(kind, type) else None

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Name():
                return self._scope.get(node.id)
            case ast.Attribute():
                return self._member(self._value(node.value), node.attr)
            case ast.Await():
                return self._value(node.value)
            case ast.Call():
                callee = self._value(node.func)
                self._run_all(node.args, [one.value for one in node.keywords])
                return self._result(callee, node)
            case ast.NamedExpr():
                self.run(node)
            case ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                self._run_all(node.generators)
                self._run_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
            case ast.Subscript():
                self.run(node.slice)
                return _item(self._value(node.value))
            case _:
                self._run_all(ast.iter_child_nodes(node))
        return None

    def _member(self, value: Value, name: str) -> Value:
        if isinstance(value, Instance):
            kind = value.kind
            if name not in _members(kind):
                if _is_ours(kind):
                    self.problems.append(f"{kind.__name__} has no attribute {name!r}")
                return None
            found = inspect.getattr_static(kind, name, None)
            if isinstance(found, classmethod | staticmethod):
                return getattr(kind, name)
            if isinstance(found, types.FunctionType):
                return Method(found, value)
            if isinstance(found, property | cached_property):
                return _returned(found.fget if isinstance(found, property) else found.func, value)
            return _of_hint(_hints(kind).get(name) or _set_attributes(kind).get(name), value)
        if not isinstance(value, types.ModuleType | type):
            return None
        if isinstance(value, types.ModuleType) and not hasattr(value, name) and value.__name__.startswith(OURS):
            return self._submodule(value, name)
        if isinstance(value, type) and name in _members(value) and not hasattr(value, name):
            return self._member(Instance(value), name)
        if hasattr(value, name):
            return getattr(value, name)
        if _is_ours(value):
            self.problems.append(f"{value.__name__} has no attribute {name!r}")
        return None

    def _result(self, callee: Value, call: ast.Call) -> Value:
        function = callee.function if isinstance(callee, Method) else callee
        if callable(function) and not isinstance(function, Instance | Items) and _is_ours(function):
            accepted, places = _arguments(function, is_bound=isinstance(callee, Method))
            name = getattr(function, "__name__", str(function))
            for keyword in call.keywords:
                if accepted is not None and keyword.arg is not None and keyword.arg not in accepted:
                    self.problems.append(f"{name}() has no argument {keyword.arg!r}")
            given = [one for one in call.args if not (isinstance(one, ast.Constant) and one.value is ...)]
            if places is not None and len(given) > places and not any(isinstance(one, ast.Starred) for one in given):
                self.problems.append(f"{name}() has {places} positional arguments, not {len(given)}")
        if isinstance(function, type):
            return Instance(function)
        if isinstance(function, types.FunctionType | types.MethodType) and not _is_facade(function):
            return _returned(function, callee.owner if isinstance(callee, Method) else None)
        return None


def _is_ours(thing: Any) -> bool:
    name = thing.__name__ if isinstance(thing, types.ModuleType) else getattr(thing, "__module__", None)
    return (name or "").startswith(OURS)


def _is_facade(function: Any) -> bool:
    """Whether it has the annotations of another function, as the calls of the blocking client have."""
    return hasattr(function, "__wrapped__") and function.__globals__["__name__"].startswith(OURS)


def _arguments(function: Any, *, is_bound: bool) -> tuple[set[str] | None, int | None]:
    """The keywords of a call and the number of its positional arguments; None = any."""
    if descriptor := getattr(function, "DESCRIPTOR", None):
        return set(getattr(descriptor, "fields_by_name", ())), None
    try:
        parameters = list(inspect.signature(function).parameters.values())[is_bound:]
    except ValueError:
        return None, None
    kinds = [one.kind for one in parameters]
    accepted = {one.name for one in parameters if one.kind is not inspect.Parameter.POSITIONAL_ONLY}
    places = sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)
    return (
        None if inspect.Parameter.VAR_KEYWORD in kinds else accepted,
        None if inspect.Parameter.VAR_POSITIONAL in kinds else places,
    )


@cache
def _members(kind: type) -> frozenset[str]:
    """The attributes of a class and of its objects, including those that its methods set."""
    return frozenset({*dir(kind), *getattr(kind, "__match_args__", ()), *_hints(kind), *_set_attributes(kind)})


@cache
def _set_attributes(kind: type) -> dict[str, Any]:
    """The attributes that methods set, with their types; None = unknown."""
    found: dict[str, Any] = {}
    for base in filter(_is_ours, kind.__mro__):
        with contextlib.suppress(OSError, TypeError):
            for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(base)))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    found = _set_by(node, vars(sys.modules[base.__module__])) | found
    return found


def _set_by(method: ast.FunctionDef | ast.AsyncFunctionDef, names: dict[str, Any]) -> dict[str, Any]:
    annotations = {one.arg: one.annotation for one in (*method.args.args, *method.args.kwonlyargs)}
    found: dict[str, Any] = {}
    for node in ast.walk(method):
        for target, value in _assigned(node):
            if isinstance(target, ast.Attribute):
                kind = getattr(node, "annotation", None)
                if kind is None:
                    kind = value.func if isinstance(value, ast.Call) else annotations.get(getattr(value, "id", ""))
                found[target.attr] = None
                with contextlib.suppress(Exception):
                    found[target.attr] = eval(ast.unparse(kind), dict(names)) if kind is not None else None
    return found


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """The targets of an assignment, each with its value if it has one of its own."""
    value = getattr(node, "value", None)
    for target in node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]:
        if isinstance(target, ast.Tuple):
            values = value.elts if isinstance(value, ast.Tuple) else [None] * len(target.elts)
            yield from zip(target.elts, values, strict=False)
        elif isinstance(target, ast.expr):
            yield target, value


_CLIENT = {name: getattr(ortoo.client, name) for name in ortoo.client.__all__}
"""The names of annotations that only type checkers import, because the client imports its modules at the first use."""


@cache
def _hints(thing: Any) -> dict[str, Any]:
    for names in (None, _CLIENT):
        with contextlib.suppress(NameError, TypeError, AttributeError):
            return typing.get_type_hints(thing, localns=names)
    return {}


def _returned(function: Any, owner: Instance | None) -> Value:
    return _of_hint(_hints(function).get("return"), owner)


def _of_hint(hint: Any, owner: Instance | None) -> Value:
    """The value of an annotation; for a coroutine the value that it returns."""
    if hint is typing.Self:
        return owner
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        options = [one for one in arguments if one is not type(None)]
        return _of_hint(options[0], owner) if len(options) == 1 else None
    if origin is None:
        return Instance(hint) if isinstance(hint, type) and hint is not type(None) else None
    if _is_ours(origin):
        return Instance(origin)
    if not arguments or origin in (dict, Callable, Mapping) or not isinstance(origin, type):
        return None
    if origin.__name__ in ("Awaitable", "Coroutine"):
        return _of_hint(arguments[-1], owner)
    if len({*arguments} - {Ellipsis, type(None), None}) == 1 or origin.__name__.endswith(("Manager", "Generator")):
        return Items(_of_hint(arguments[0], owner))
    return None


def _entered(value: Value) -> Value:
    if isinstance(value, Instance):
        for name in ("__aenter__", "__enter__"):
            if name in _members(value.kind):
                return _returned(getattr(value.kind, name), value)
    return _item(value)


def _item(value: Value) -> Value:
    if isinstance(value, Items):
        return value.item
    if isinstance(value, Instance):
        for name in ("__anext__", "__next__"):
            if name in _members(value.kind):
                return _returned(getattr(value.kind, name), value)
        for name in ("__aiter__", "__iter__"):
            if name in _members(value.kind) and _is_ours(value.kind):
                return _item(_returned(getattr(value.kind, name), value))
    return None


def inline_calls(text: str) -> Iterator[str]:
    """The expression that a piece of inline code is, if it has one: `HandlerOptions(suspend_ms=…)`."""
    with contextlib.suppress(SyntaxError):
        body = parsed(source := text.replace("…", "...")).body
        if len(body) == 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Call | ast.Attribute):
            yield source


def unknown_results(source: str, known: Mapping[str, Value]) -> list[str]:
    """The classes without a definition in comments that show a result: `rule.last()  # Park(attempt=3)`."""
    comments = re.findall(r"  # (([A-Z]\w*)\(.*\))$", source, re.MULTILINE)
    return [f"there is no {name}" for call, name in comments if name not in known and [*inline_calls(call)]]


def unknown_classes(source: str, known: Collection[str]) -> list[str]:
    """The classes that an example uses without an import or a definition."""
    nodes = list(ast.walk(parsed(source)))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    defined = {alias.asname or alias.name for node in imports for alias in node.names}
    defined.update(node.name for node in nodes if isinstance(node, ast.ClassDef))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and re.match(r"[A-Z]\w*[a-z]", node.id)}
    return [f"there is no {name}" for name in sorted(used - defined - {*known, *dir(builtins)})]


def unknown_argument(inline: str, names: Collection[str]) -> list[str]:
    """The argument in inline code of a docstring, `counts=False`, if it is not among the names in the module."""
    found = re.match(r"([a-z_]\w*)=\S", inline)
    return [f"there is no argument {found[1]!r}"] if found and found[1] not in names else []
