"""Writes the page of all settings from the classes that define them: `make docs`."""

import ast
import dataclasses
import enum
import inspect
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from ortoo.common.process.settings import ranges
from ortoo.console.settings import ConsoleSettings
from ortoo.enode.settings import EnodeSettings
from ortoo.namesrv.settings import NamesrvSettings
from ortoo.snode.settings import SnodeSettings

ROLES: dict[str, tuple[str, type[NamesrvSettings | EnodeSettings | SnodeSettings | ConsoleSettings]]] = {
    "namesrv": ("Name server", NamesrvSettings),
    "enode": ("Enode", EnodeSettings),
    "snode": ("Snode", SnodeSettings),
    "console": ("Console", ConsoleSettings),
}
HEAD = (
    "# Settings\n\nFor operators: every setting of every role, with default, range and meaning.\n\n"
    "`make docs` makes this page from the code. Each setting can be given in the file that `-c` names, or in the "
    "environment. For example `store.flush_mode` of an enode is `[store] flush_mode` in the file and "
    "`ORTOO_ENODE_STORE_FLUSH_MODE` in the environment. "
    "`-p` prints the values in force and their sources ([processes](../operations/processes.md)). "
    'A list is written as `["a", "b"]` in the file, and as `a,b` in the environment. '
    "*Live* settings [can change in a running process](../operations/processes.md#settings-of-running-processes). "
    "*Reloaded* settings change in a running process only by SIGHUP, after a change of the file.\n"
)


def described(cls: Any) -> dict[str, str]:
    """Field name to the text below it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def rows(settings: Any, prefix: str = "") -> list[tuple[str, str, str, str]]:
    """(name, default, range, description) of every setting, nested ones last."""
    allowed = ranges(type(settings))
    texts = {name: text for cls in reversed(type(settings).__mro__[:-1]) for name, text in described(cls).items()}
    plain, nested = [], []
    for field in dataclasses.fields(settings):
        name, value = prefix + field.name, getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            nested += rows(value, name + ".")
        elif name not in EnodeSettings.HIDDEN:
            limits = allowed.get(field.name)
            numbers = f"{shown(limits.minimum)} to {shown(limits.maximum)}" if limits else ""
            plain.append((name, shown(value), numbers, texts.get(field.name, "")))
    return plain + nested


def shown(value: Any) -> str:
    """A default as it is written in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return json.dumps(value)
    if isinstance(value, enum.Enum):
        value = value.value
    return f"{value:,}".replace(",", "_") if isinstance(value, int) else str(value)


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, cls in ROLES.values():
        parts.append(f"## {title}\n\n| setting | default | range | meaning |\n|---|---|---|---|")
        for name, default, numbers, text in rows(cls()):
            text += " *Live.*" if name in cls.LIVE else " *Reloaded.*" if name in cls.RELOADED else ""
            parts.append(
                f"| `{name}` | {f'`{default}`' if default else ''} | {numbers} | {text.replace('|', chr(92) + '|')} |"
            )
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
