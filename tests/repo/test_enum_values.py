"""Enum values of other processes are opened by `known_or` alone, because constructors raise for unknown values."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.repo.tree import Tree

ENUM_BASES = {"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"}
OPENER = "ortoo/common/grpc/enum_values.py"
EXCEPTIONS = {
    ("ortoo/common/records/view.py", "Codec(codec_number or Codec.NONE)"): "checked before: Unsupported if it is newer",
    ("ortoo/common/errors/status.py", "failure_pb2.FailureKind.Name(kind)"): "kinds of the table in this module",
    ("ortoo/spark/writing/write_options.py", "Codec[reader.choice('codec', 'none', 'none', 'zstd', 'lz4').upper()]"):
        "one of the choices of an option",
    ("ortoo/verification/store/workload.py", "GroupMode(chance.below(4))"): "a random known mode",
    ("ortoo/enode/delays/scheduler.py", "TimerStatus(status)"): "from the memory of this process",
    ("ortoo/enode/offline/inspect.py", "FrameKind(header.kind)"): "decode_header rejects unknown kinds by Unsupported",
    ("ortoo/enode/state/tables/pops.py", "Phase(phase)"):
        "from the log: a default would make replicas differ, so an unknown value stops the process",
    ("ortoo/enode/transactions/coordinator.py", "HalfVerdict(ended.verdict)"): "from the log, or being stored",
    ("ortoo/snode/policy/access_rules.py", "Grant[word]"): "from a file of the operator, checked before",
    ("ortoo/snode/policy/flow_control.py", "FlowUnit[str(one.get('unit', 'requests')).upper()]"):
        "from a file of the operator, rejected by Invalid",
}  # fmt: skip
"""Conversions of values that no other process sends, each with the reason."""


def conversions(tree: Tree) -> Iterator[tuple[str, str]]:
    """Each (module, expression) that makes an enum of a value, or a name of a number of a protobuf enum."""
    parsed = {
        name.split("/src/", 1)[1]: list(ast.walk(ast.parse(tree.text(name))))
        for name in tree.named(".py")
        if "/src/" in name
    }
    enums = {
        f"{_dotted(module)}.{node.name}"
        for module, nodes in parsed.items()
        for node in nodes
        if isinstance(node, ast.ClassDef) and any(_last_name(base) in ENUM_BASES for base in node.bases)
    }
    imports = {f"{_dotted(module)}.{name}": full for module, nodes in parsed.items() for name, full in _imported(nodes)}
    for module, nodes in parsed.items():
        if module != OPENER:
            for node in nodes:
                if _names_number(node) or _full_name(_opened(node), _dotted(module), imports) in enums:
                    yield module, ast.unparse(node)


def _opened(node: ast.AST) -> str:
    """The class or container to which a node passes a value that is not a constant; empty for other nodes."""
    match node:
        case ast.Call(func=kind, args=[ast.expr() as value, *_]) | ast.Subscript(value=kind, slice=value):
            return "" if isinstance(value, ast.Constant) else _dotted_text(kind)
    return ""


def _dotted_text(node: ast.expr) -> str:
    """`a.b` of such an expression; empty for others. `ast.unparse` would take most of the time of the rule."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=owner, attr=name):
            return f"{before}.{name}" if (before := _dotted_text(owner)) else ""
    return ""


def _names_number(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="Name"), args=[value]):
            return not isinstance(value, ast.Constant | ast.List)
    return False


def _imported(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Each local name, and the full name of what it was imported from."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            yield from ((one.asname or one.name, f"{node.module}.{one.name}") for one in node.names)


def _full_name(text: str, module: str, imports: Mapping[str, str]) -> str:
    """The full name of a name in a module, also through packages that import it from their modules."""
    first, _, rest = text.partition(".")
    full = f"{module}.{first}"
    while full in imports:
        full = imports[full]
    return f"{full}.{rest}".removesuffix(".")


def _last_name(base: ast.expr) -> str:
    return ast.unparse(base).rpartition(".")[2]


def _dotted(module: str) -> str:
    return module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def strict_readers(tree: Tree) -> list[str]:
    """Modules that use `read_request`, which rejects unknown values, and do not serve requests."""
    return [
        name
        for name in tree.named(".py")
        if "/src/" in name and "read_request(" in tree.text(name)
        if not (name.startswith("services/") and "/rpc/" in name) and not name.endswith("common/grpc/messages.py")
    ]


def test_enum_values_of_other_processes_are_opened_by_one_function(tree: Tree) -> None:
    """Use `known_or` with a safe default; in requests of clients, `check_known` first."""
    found = set(conversions(tree))
    wrong = sorted(found - EXCEPTIONS.keys())
    assert not wrong, f"open these by known_or, check_known or name_of ({OPENER}): {wrong}"
    assert EXCEPTIONS.keys() <= found, f"remove these exceptions: {sorted(EXCEPTIONS.keys() - found)}"


def test_answers_are_not_read_as_requests(tree: Tree) -> None:
    """An answer with an unknown value must not raise, so `read` and `known_or` decode it."""
    assert strict_readers(tree) == []


def test_the_rules_on_enum_values_fire(tmp_path: Path) -> None:
    """Calls, subscripts and names of protobuf enums are found, by any import; constants and other classes are not."""
    kinds = "import enum\nclass Mode(enum.IntEnum):\n    A = 1\nx = Mode(1)\ny = Mode(one.mode)\n"
    user = (
        "from ortoo.a import N, kinds\nfrom ortoo.a.kinds import Mode as M\nfrom ortoo.v1.pb2 import Resource, State\n"
        "N(answer.mode)\nM(answer.mode)\nkinds.Mode(int(answer.mode))\nM[text]\nM['A']\nState.Name(answer.state)\nState.Name(1)\n"
        "Resource(name)\nknown_or(M, answer.mode, M.A)\n"
    )
    planted = {
        "libs/a/src/ortoo/a/__init__.py": "from ortoo.a.kinds import Mode as N\n",
        "libs/a/src/ortoo/a/kinds.py": kinds,
        "services/b/src/ortoo/b/user.py": user,
        "services/b/src/ortoo/b/rpc/x.py": "read_request(A, request)\n",
        "services/b/src/ortoo/b/y.py": "read_request(A, answer)\n",
    }
    tree = Tree.planted(tmp_path, planted)
    assert sorted(conversions(tree)) == [
        ("ortoo/a/kinds.py", "Mode(one.mode)"),
        ("ortoo/b/user.py", "M(answer.mode)"),
        ("ortoo/b/user.py", "M[text]"),
        ("ortoo/b/user.py", "N(answer.mode)"),
        ("ortoo/b/user.py", "State.Name(answer.state)"),
        ("ortoo/b/user.py", "kinds.Mode(int(answer.mode))"),
    ]
    assert strict_readers(tree) == ["services/b/src/ortoo/b/y.py"]
