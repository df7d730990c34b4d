"""The remedies of findings and reasons name only commands and options that exist."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from ortoo.cli.app import COMMANDS, FAMILIES

ROOT = Path(__file__).parents[2]
SOURCES = (
    *("services/enode/src/ortoo/enode/observe/findings.py", "services/namesrv/src/ortoo/namesrv/catalog/catalog.py"),
    "libs/common/src/ortoo/common/cluster/refused.py",
    *(
        "services/snode/src/ortoo/snode/rpc/operators/explanation/reasons.py",
        "libs/client/src/ortoo/client/admin/doctor/findings.py",
    ),
    *(
        "libs/common/src/ortoo/common/process/memory_budget.py",
        "libs/common/src/ortoo/common/cluster/dynamic_settings.py",
    ),
)
COMMAND = re.compile(r"ortoo ([a-z-]+)(?: ([a-z-]+))?((?: (?:\{[^}]*\}|[A-Z]+|--[a-z-]+))*)")


def options_of(work: Callable[..., object]) -> set[str]:
    """The options of a command, as Typer names them."""
    named: set[str] = set()
    for name, parameter in inspect.signature(work).parameters.items():
        named.add(f"--{name.replace('_', '-')}")
        for about in get_args(parameter.annotation):
            named.update(getattr(about, "param_decls", None) or ())
            default = getattr(about, "default", None)
            named.update(one for one in (default,) if isinstance(one, str))
    return named


def test_every_command_of_a_cure_exists() -> None:
    """Every command and option in a remedy exists."""
    found = 0
    for source in SOURCES:
        for word, second, rest in COMMAND.findall((ROOT / source).read_text()):
            if word not in COMMANDS and word not in FAMILIES:
                continue
            work = FAMILIES[word][1][second] if word in FAMILIES else COMMANDS[word]
            declared = options_of(work)
            for option in re.findall(r"--[a-z-]+", rest):
                assert option in declared, (source, word, second, option)
            found += 1
    assert found > 15
