"""Ortoo uses the public names of grpcio, so that every version of it from the lowest supported one can be installed."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.repo.tree import Tree

ROOTS = ("libs/", "services/")
GENERATED = "libs/wire/src/"
PRIVATE = re.compile(r"\bgrpc\w*(?:\.\w+)*\._[a-z]\w*|\bcygrpc\b")
"""A private module of grpcio and its packages, such as `grpc._cython`."""
ALLOWED = {
    "libs/testing/src/ortoo/testing/memory_grpc/channel.py": "grpc.aio._channel",
    "libs/testing/src/ortoo/testing/memory_grpc/client_call.py": "grpc.aio._call",
    "libs/testing/src/ortoo/testing/memory_grpc/server.py": "grpc.aio._server",
}
"""The simulation runs the classes of grpc.aio itself, over another core."""


def private_names(tree: Tree) -> Iterator[str]:
    """Each use of a private name of grpcio."""
    for name in tree.names:
        if name.endswith(".py") and name.startswith(ROOTS) and not name.startswith(GENERATED):
            for found in PRIVATE.findall(tree.text(name)):
                if ALLOWED.get(name) != found:
                    yield f"{name}: {found}"


def test_no_private_name_of_grpcio_is_used(tree: Tree) -> None:
    """Private names change without notice. The exceptions are still needed."""
    assert list(private_names(tree)) == []
    assert all(found in tree.text(name) for name, found in ALLOWED.items())


def test_a_private_name_is_found(tmp_path: Path) -> None:
    """The rule fires for each form of import."""
    texts = ("from grpc._cython import cygrpc", "import grpc_health.v1._async as aio", "from grpc.aio import EOF")
    planted = Tree.planted(tmp_path, {f"libs/{number}.py": text for number, text in enumerate(texts)})
    assert list(private_names(planted)) == [
        "libs/0.py: grpc._cython",
        "libs/0.py: cygrpc",
        "libs/1.py: grpc_health.v1._async",
    ]
