"""The command line of the enode."""

import argparse
import dataclasses
import enum
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from ortoo.common.errors import OrtooError
from ortoo.common.service import EXIT_REFUSED
from ortoo.common.settings import Loaded
from ortoo.enode.settings import IMPORTANT, Settings, load

TOOLS = ("inspect", "repair")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_REFUSED, f"error: {message}; {self.prog} -h explains the options\n")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the server's command line; ends the process on `-h` and on what cannot be understood."""
    parser = _Parser(
        prog="ortoo-enode",
        description="A storage node of Ortoo.",
        epilog="`ortoo-enode inspect DIR` reads a store without the server; `ortoo-enode repair DIR` shows what is "
        "damaged in one, and mends it when told to. Each has its own -h.",
    )
    parser.add_argument("-c", dest="file", type=Path, metavar="FILE", help="settings file, TOML")
    parser.add_argument("-n", dest="namesrv", metavar="HOST:PORT", help="name server, several separated by ;")
    parser.add_argument("-p", dest="print_all", action="store_true", help="print all settings and where they come from")
    parser.add_argument("-m", dest="print_important", action="store_true", help="print the important settings")
    return parser.parse_args(arguments)


def settings_of(arguments: argparse.Namespace) -> Loaded[Settings]:
    """The settings, with the command line's first. Errors: Invalid."""
    return load(file=arguments.file, overrides={"namesrv_address": arguments.namesrv})


def run_tool(name: str, arguments: Sequence[str]) -> int:
    """Run one of TOOLS; each parses the rest of the command line itself."""
    module = importlib.import_module(f"ortoo.enode.{name}")
    try:
        code: int = module.main(arguments)
    except OrtooError as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_REFUSED
    return code


def print_settings(loaded: Loaded[Settings], *, important_only: bool) -> None:
    """Print settings as TOML, each with where it comes from; the output can be given back with `-c`."""
    plain: list[str] = []
    nested: list[str] = []
    for name, value in _flat(loaded.settings):
        if important_only and name not in IMPORTANT:
            continue
        line = f"{name} = {_toml(value)}  # {loaded.origins[name]}"
        (nested if "." in name else plain).append(line)
    sys.stdout.write("\n".join(plain + nested) + "\n")


def _flat(settings: Any, prefix: str = "") -> list[tuple[str, Any]]:
    found = []
    for field in dataclasses.fields(settings):
        value, name = getattr(settings, field.name), prefix + field.name
        if dataclasses.is_dataclass(value):
            found += _flat(value, name + ".")
        elif name not in ("store.enode", "store.cluster"):  # taken from `name` and `cluster`
            found.append((name, value))
    return found


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, int | float):
        return str(value)
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
