"""The command line of the snode."""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from ortoo.common.service import EXIT_REFUSED
from ortoo.common.settings import Loaded
from ortoo.snode.settings import Settings, load


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_REFUSED, f"error: {message}; {self.prog} -h explains the options\n")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; ends the process on `-h` and on what cannot be understood."""
    parser = _Parser(prog="ortoo-snode", description="The proxy of Ortoo, where clients connect.")
    parser.add_argument("-c", dest="file", type=Path, metavar="FILE", help="settings file, TOML")
    parser.add_argument("-n", dest="namesrv", metavar="HOST:PORT", help="name server, several separated by ;")
    parser.add_argument("-p", dest="port", type=_port, metavar="PORT", help="port to serve on; 0 takes any free one")
    parser.add_argument("-m", dest="print_settings", action="store_true", help="print settings and where they are from")
    return parser.parse_args(arguments)


def settings_of(arguments: argparse.Namespace) -> Loaded[Settings]:
    """The settings, with the command line's first. Errors: Invalid."""
    overrides: dict[str, Any] = {"namesrv_address": arguments.namesrv}
    if arguments.port is not None:
        host = load(file=arguments.file).settings.listen_address.rpartition(":")[0]
        overrides["listen_address"] = f"{host}:{arguments.port}"
    return load(file=arguments.file, overrides=overrides)


def print_settings(loaded: Loaded[Settings]) -> None:
    """Print settings as TOML, each with where it comes from; the output can be given back with `-c`."""
    for field in dataclasses.fields(loaded.settings):
        value = getattr(loaded.settings, field.name)
        sys.stdout.write(f"{field.name} = {_toml(value)}  # {loaded.origins[field.name]}\n")


def _toml(value: Any) -> str:
    if isinstance(value, int | float):
        return str(value)
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is no port; expected 0 to 65535")
    return int(text)
