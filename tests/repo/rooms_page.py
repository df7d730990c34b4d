"""The map of the packages, drawn by grimp from their imports: `make docs` writes it, a test compares it."""

import ast
import graphlib
import sys
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import grimp

from tests.repo.tree import ROOT

HOUSES: dict[str, str] = {
    "ortoo.console": "services/console/src/ortoo/console",
    "ortoo.snode": "services/snode/src/ortoo/snode",
    "ortoo.enode": "services/enode/src/ortoo/enode",
    "ortoo.namesrv": "services/namesrv/src/ortoo/namesrv",
    "ortoo.client": "libs/client/src/ortoo/client",
    "ortoo.common": "libs/common/src/ortoo/common",
    "ortoo.spark": "libs/spark/src/ortoo/spark",
    "ortoo.cli": "libs/cli/src/ortoo/cli",
}
"""Distributions and their folders, highest layer first."""

HEAD = """# Packages

For contributors: a map of the packages, their purposes and their imports.

A package is a folder for one concern. An arrow from A to B means that A imports B; `make docs` draws
the arrows from the code. An import that already follows from other arrows is left out.
Packages of one library or service never import one another in a circle. `make check` runs the contracts in
`pyproject.toml`.
"""

NESTED = frozenset({"ortoo.enode.replication.protocol"})
"""Packages inside another one that lie below it, and so count for themselves."""

Uses = Mapping[str, frozenset[str]]
"""Package to the packages that it imports."""


def uses_of(package: str) -> Uses:
    """The imports between the packages of a distribution, without modules at its root, which only join packages."""
    graph = grimp.build_graph(package, cache_dir=None)
    rooms = {name for name in graph.find_children(package) if graph.find_children(name)}
    rooms |= {name for name in NESTED if name.startswith(f"{package}.")}
    found: dict[str, set[str]] = {room.removeprefix(f"{package}."): set() for room in sorted(rooms)}
    for module in graph.find_descendants(package):
        for imported in graph.find_modules_directly_imported_by(module):
            room, other = room_of(module, rooms), room_of(imported, rooms)
            if room and other and other != room:
                found[room.removeprefix(f"{package}.")].add(other.removeprefix(f"{package}."))
    return {room: frozenset(others) for room, others in found.items()}


def room_of(module: str, rooms: Set[str]) -> str:
    """The innermost room that a module lies in; empty for one at the root of a package."""
    return max((room for room in rooms if f"{module}.".startswith(f"{room}.")), key=len, default="")


def circle_in(uses: Uses) -> Sequence[str] | None:
    """A cycle of packages, with the first one repeated at its end, or None."""
    try:
        graphlib.TopologicalSorter(uses).prepare()
    except graphlib.CycleError as error:
        found: list[str] = error.args[1]
        return found
    return None


def reduced(uses: Uses) -> Uses:
    """The same order with the fewest arrows: an arrow implied by others is left out. There must be no cycle."""
    reach: dict[str, frozenset[str]] = {}
    for room in graphlib.TopologicalSorter(uses).static_order():
        reach[room] = frozenset(uses[room]).union(*(reach[other] for other in uses[room]))
    return {
        room: frozenset(o for o in others if not any(o in reach[between] for between in others - {o}))
        for room, others in uses.items()
    }


def sentence_of(room: Path) -> str:
    """The first sentence of a package's docstring, on one line."""
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def page() -> str:
    """The whole page: a picture and a table for each distribution."""
    parts = [HEAD]
    for package, folder in HOUSES.items():
        uses = uses_of(package)
        parts.append(f"## {package}\n\n```mermaid\nflowchart TD")
        parts += [f"  {room} --> {other}" for room, others in reduced(uses).items() for other in sorted(others)]
        parts.append("```\n\n| package | purpose |\n|---|---|")
        parts += [
            f"| [{room}](../{folder}/{path}) | {sentence_of(ROOT / folder / path)} |"
            for room in uses
            if (path := room.replace(".", "/"))
        ]
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
