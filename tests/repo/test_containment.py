"""The tasks whose failure may end a process: every place that starts a task is checked."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.tree import ROOT, Tree

OWN_LOOPS = {
    "probe_loop": "libs/common/src/ortoo/common/telemetry/process_metrics.py",
    "export.run": "libs/common/src/ortoo/common/telemetry/export.py",
    "housekeeping.start": "services/enode/src/ortoo/enode/store/housekeeping.py",
    "watch_topics": "services/enode/src/ortoo/enode/cluster/topic_copies.py",
    "delays.run": "services/enode/src/ortoo/enode/delays/scheduler.py",
    "transactions.run": "services/enode/src/ortoo/enode/transactions/coordinator.py",
    "follow_locks": "services/enode/src/ortoo/enode/rpc/streams/attach.py",
    "close_on": "services/namesrv/src/ortoo/namesrv/directory/watches.py",
    "follow_database": "services/namesrv/src/ortoo/namesrv/directory/directory.py",
    "_follow_enodes": "services/snode/src/ortoo/snode/app.py",
    "drain": "services/snode/src/ortoo/snode/app.py",
    "watch.run": "services/snode/src/ortoo/snode/cluster/watch.py",
    "groups.run": "services/snode/src/ortoo/snode/membership/consumer_groups.py",
    "registration.run": "libs/common/src/ortoo/common/cluster/registrations.py",
    "_run": "services/snode/src/ortoo/snode/membership/store.py",
}
"""The process's own loops, by the end of their name, and the text that states why each may end the process."""
STARTS = {
    "libs/common/src/ortoo/common/cluster/registrations.py": 0,
    "libs/common/src/ortoo/common/telemetry/role.py": 2,
    "libs/common/src/ortoo/common/grpc/h2/client/channel.py": 1,
    "libs/common/src/ortoo/common/grpc/h2/methods.py": 2,
    "libs/common/src/ortoo/common/process/background.py": 5,
    "libs/common/src/ortoo/common/process/deadlines.py": 1,
    "services/enode/src/ortoo/enode/replication/driver.py": 3,
    "services/enode/src/ortoo/enode/leadership/replica_process.py": 4,
    "services/enode/src/ortoo/enode/leadership/services.py": 4,
    "services/enode/src/ortoo/enode/rpc/replicas/reports.py": 1,
    "services/enode/src/ortoo/enode/store/housekeeping.py": 1,
    "services/namesrv/src/ortoo/namesrv/app.py": 2,
    "services/snode/src/ortoo/snode/app.py": 5,
    "services/snode/src/ortoo/snode/membership/store.py": 7,
}
"""The number of tasks started without containment in each file.

They are the loops above, the loops of their parts, and the inside of `Background` and the deadlines.
Attempts of h2 channels to connect handle all errors.
"""
ROOTS = ("libs/common/src/", "services/")
STARTING = {"spawn", "create_task", "ensure_future"}


def uncontained(tree: Tree) -> Iterator[tuple[str, str]]:
    """Each (file, call) that starts a task, unless on a Background that the same function opened for itself."""
    for name in tree.names:
        if not name.startswith(ROOTS) or not name.endswith(".py") or "/testing/" in name:
            continue
        text = tree.text(name)
        if not any(word in text for word in STARTING):
            continue
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                starting = [call for call in _calls(function) if _target(call)]
                own = set(_opened(function)) if starting else set()
                yield from ((name, ast.unparse(call)) for call in starting if _target(call) not in own)


def _target(call: ast.Call) -> str:
    """The object that a call starts a task on; empty if it starts none."""
    starts = isinstance(call.func, ast.Attribute) and call.func.attr in STARTING
    return ast.unparse(call.func.value) if starts else ""  # type: ignore[attr-defined]


def _opened(function: ast.AST) -> Iterator[str]:
    """The names of Backgrounds that live only within a function's block."""
    for node in ast.walk(function):
        if isinstance(node, ast.AsyncWith):
            for item in node.items:
                if item.optional_vars is not None and ast.unparse(item.context_expr).startswith("Background("):
                    yield ast.unparse(item.optional_vars)
        elif isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Background("):
            yield ast.unparse(node.targets[0])


def _calls(function: ast.AST) -> Iterator[ast.Call]:
    """The calls of a function, not those of functions in it."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from _calls(child)


def test_only_the_processs_own_loops_may_end_it() -> None:
    """A task for one peer is started by a scope, `contained` or `asked`; all others are counted here."""
    found: dict[str, list[str]] = {}
    for name, call in uncontained(Tree.of_git(ROOT)):
        found.setdefault(name, []).append(call)
    wrong = {name: calls for name, calls in found.items() if len(calls) != STARTS.get(name, 0)}
    assert not wrong, f"start these by background.scope(), .contained() or .asked(), or list the loop: {wrong}"


@pytest.mark.parametrize("loop", OWN_LOOPS)
def test_each_of_them_says_why(loop: str) -> None:
    """Its docstring, or its class's, mentions the process."""
    function = loop.rpartition(".")[2]
    parsed = ast.parse((ROOT / OWN_LOOPS[loop]).read_text(encoding="utf-8"))
    said = [
        ast.get_docstring(node) or ""
        for node in ast.walk(parsed)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function
    ]
    assert any("process" in words for words in said), f"{loop} does not state why it may end the process"


def test_a_task_for_a_peer_on_the_processs_background_is_found(tmp_path: Path) -> None:
    """The rule fires for tasks of a peer, and not where a function waits for its own tasks."""
    text = """
async def handler(self):
    self.background.spawn("x", work())
    async with Background("own") as own:
        own.spawn("y", work())
"""
    tree = Tree.planted(tmp_path, {"services/a.py": text})
    assert list(uncontained(tree)) == [("services/a.py", "self.background.spawn('x', work())")]


def between_fork_and_exec(tree: Tree) -> list[str]:
    """Places that run Python in a forked process before its program begins.

    gRPC restarts its threads in each fork, and they lose their descriptors there: one fork in fifty was aborted.
    """
    return [
        f"{name}:{node.value.lineno}"
        for name in tree.named(".py")
        if "preexec_fn" in (text := tree.text(name))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.keyword) and node.arg == "preexec_fn"
    ]


def test_nothing_runs_between_fork_and_exec(tree: Tree) -> None:
    """A started program begins, or reports the reason itself."""
    assert between_fork_and_exec(tree) == []


def test_the_rule_on_forks_fires(tmp_path: Path) -> None:
    """The argument is found wherever it is passed; mentions in text are not."""
    planted = {"a.py": "Popen(['x'], preexec_fn=f)\n", "b.py": "# no preexec_fn\n"}
    assert between_fork_and_exec(Tree.planted(tmp_path, planted)) == ["a.py:1"]
