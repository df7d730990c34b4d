"""Interfaces between packages state what may run concurrently, what is durable when a call returns, and errors."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.repo.tree import Tree

SEAMS = {
    "services/enode/src/ortoo/enode/disk/disk.py": ("File", "Disk"),
    "services/enode/src/ortoo/enode/log/appender.py": ("Appender",),
    "services/enode/src/ortoo/enode/log/flushing/disk_work.py": ("DiskWork",),
    "services/enode/src/ortoo/enode/replication/replicated_log.py": ("ReplicatedLog",),
    "services/enode/src/ortoo/enode/rpc/replicas/peers.py": ("ReplicaPeers",),
    "services/namesrv/src/ortoo/namesrv/catalog/database.py": ("Database",),
    "services/snode/src/ortoo/snode/enodes/grpc_link.py": ("GrpcEnodeLink",),
    "services/snode/src/ortoo/snode/membership/store.py": ("MembershipStore",),
}
"""The interfaces between packages, and to disks, databases and other processes."""
SUBJECTS = ("Concurrency:", "Durability:", "Errors:")


def unstated(tree: Tree, seams: dict[str, tuple[str, ...]]) -> Iterator[str]:
    """Each interface whose docstring lacks a subject, with the subject."""
    for name, interfaces in seams.items():
        classes = {node.name: node for node in ast.walk(ast.parse(tree.text(name))) if isinstance(node, ast.ClassDef)}
        for interface in interfaces:
            lines = (ast.get_docstring(classes[interface]) or "").splitlines()
            for subject in SUBJECTS:
                if not any(line.startswith(subject) for line in lines):
                    yield f"{name}: {interface} lacks '{subject}'"


def test_interfaces_state_concurrency_durability_and_errors(tree: Tree) -> None:
    """The docstring of each interface between packages has the three subjects."""
    assert list(unstated(tree, SEAMS)) == []


def test_a_missing_subject_is_found(tmp_path: Path) -> None:
    """The rule fires for a docstring without one of the subjects."""
    text = 'class Disk:\n    """A disk.\n\n    Concurrency: one thread.\n    Errors: OSError.\n    """\n'
    planted = Tree.planted(tmp_path, {"disk.py": text})
    assert list(unstated(planted, {"disk.py": ("Disk",)})) == ["disk.py: Disk lacks 'Durability:'"]
