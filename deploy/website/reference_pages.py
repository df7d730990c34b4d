"""The pages that exist only on the site: the Python reference from docstrings, and the gRPC protocol from protos/.

A hook of MkDocs. The pages are made at each build and added to the navigation under *Look up*.
"""

import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from proto_pages import ProtoPage, described_files, pages

ROOT = Path(__file__).resolve().parents[2]
BUF = Path(sys.executable).with_name("buf")
SECTION = "Look up"

PYTHON = {
    "ortoo.client": (
        "Clients, producers, consumers, administration and errors.",
        [("ortoo.client", ["!^_", "!^App$", "!^TopicProducer$"])],
    ),
    "ortoo.client.blocking": ("The client for programs without an event loop.", [("ortoo.client.blocking", ["!^_"])]),
    "ortoo.client.apps": (
        "Handlers that are declared with decorators. Import the names from `ortoo.client`.",
        [("ortoo.client.apps.app", ["!^_"])],
    ),
    "ortoo.testing": ("The pytest plugin.", [("ortoo.testing.pytest_broker", ["!^_"])]),
}
"""Public package to its purpose, and the modules to show with the filters of their names."""

_protocol: list[ProtoPage] = []


def python_page(name: str) -> str:
    """The page of a public package, for mkdocstrings."""
    purpose, modules = PYTHON[name]
    lines = [f"# {name}", "", f"For application developers: the reference of `{name}`. {purpose}", ""]
    for module, filters in modules:
        lines += [f"::: {module}", "    options:", f"      filters: {filters}", ""]
    return "\n".join(lines)


def python_path(name: str) -> str:
    """The source path of the page of a package."""
    return f"reference/python/{name}.md"


def on_config(config: MkDocsConfig) -> None:
    """Add the pages to the navigation."""
    _protocol[:] = pages(described_files(ROOT, BUF))
    section: list[Any] = next(entry[SECTION] for entry in config.nav or () if SECTION in entry)
    section.append({"Python reference": [{name: python_path(name)} for name in PYTHON]})
    folders: dict[str, list[Any]] = {}
    for page in _protocol[1:]:
        package = Path(page.path).parent.relative_to("reference/protocol").as_posix().replace("/", ".")
        folders.setdefault(package, []).append({page.title: page.path})
    overview = _protocol[0]
    section.append({"gRPC protocol": [overview.path, *({name: entries} for name, entries in folders.items())]})


@event_priority(100)  # before the plugin that checks links notes the files
def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages to the site."""
    for name in PYTHON:
        files.append(File.generated(config, python_path(name), content=python_page(name)))
    for page in _protocol:
        files.append(File.generated(config, page.path, content=page.text))
    return files
