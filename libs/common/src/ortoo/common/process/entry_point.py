"""The command line of every role: its options and exit codes, and printing and reloading of its settings.

All roles take the same options. `-c` names a settings file, `-n` the name servers. `-p` prints every setting with its
origin, `-m` the important ones, `--version` the version, `-h` the help. SIGHUP reads the settings again: live settings
are applied, and a log line names the changed settings that take effect at the next start.
"""

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.errors.findings import process_version
from ortoo.common.logs import log_events
from ortoo.common.logs import logger as logs
from ortoo.common.logs.logger import get_logger
from ortoo.common.machine.standard_files import EXIT_UNREAD, finish_output, print_error
from ortoo.common.process import service
from ortoo.common.process.service import Running
from ortoo.common.process.settings import LoadedSettings, flatten, format_value

_log = get_logger("settings")
HOME = "ORTOO_HOME"
"""The base folder of relative paths in the settings; the current folder when it is not set."""


class RoleSettings(Protocol):
    """The settings of a role that the command line itself uses."""

    @property
    def log_level(self) -> str:
        """The lowest level of the log lines that are written: debug, info, warning or error."""

    @property
    def HIDDEN(self) -> Mapping[str, str]:  # noqa: N802  # a constant of the class
        """Settings that cannot be given, and the settings from which they are taken."""


S = TypeVar("S", bound=RoleSettings)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoleDefinition(Generic[S]):
    """The properties of a role with which the command line starts it."""

    name: str
    """As in `ortoo-NAME`."""
    about: str
    """One sentence for `-h`."""
    load: Callable[..., LoadedSettings[S]]
    """Reads the settings: environment, `file=`, `overrides=`."""
    open: Callable[[LoadedSettings[S], Callable[[], LoadedSettings[S]]], AbstractAsyncContextManager[Running]]
    """Runs the role with settings, and with the function that reads them again."""
    important: Sequence[str]
    """The settings that `-m` prints."""
    epilog: str = ""
    """The end of the text of `-h`."""


def run_command(work: Callable[[], int]) -> int:
    """Run the command of a role with open standard files. Log lines and errors never block the process.

    Returns the exit code of `work`, or EXIT_UNREAD when the reader of its output has closed the pipe.
    """
    logs.log_standard_error()
    try:
        code = work()
    except BrokenPipeError:
        code = EXIT_UNREAD
    except OSError as error:
        print_error(f"{error.filename or 'the system'}: {error.strerror}")
        code = service.EXIT_FAILED
    return finish_output(code)


def main(role: RoleDefinition[S], arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Execute the command line; returns the exit code, one of those of `ortoo.common.process.service`."""
    options = _parse_arguments(role, arguments)
    try:
        load = settings_loader(role, options.file, environ, {"namesrv_address": options.namesrv})
        loaded = load()
    except OrtooError as error:
        print_error(str(error))
        return service.exit_code_of(error)
    if options.print_all or options.print_important:
        sys.stdout.write(settings_text(role, loaded, important_only=not options.print_all))
        return 0
    logs.configure(level=loaded.settings.log_level)
    for used, name in loaded.former.items():
        _log.emit(log_events.SETTING_RENAMED, used=used, setting=name)
    for used in loaded.ignored:
        _log.emit(log_events.SETTING_IGNORED, used=used)
    return service.run(lambda: role.open(loaded, load))


def settings_loader(
    role: RoleDefinition[S], file: Path | None, environ: Mapping[str, str], overrides: Mapping[str, str | None]
) -> Callable[[], LoadedSettings[S]]:
    """A function that reads a role's settings each time that it is called. Errors: Invalid.

    The current folder is changed to ORTOO_HOME, because relative paths in the settings begin there.
    """
    absolute = file.absolute() if file is not None else None
    _enter_home(environ)
    return lambda: role.load(environ, file=absolute, overrides=overrides)


def settings_text(role: RoleDefinition[S], loaded: LoadedSettings[S], *, important_only: bool = False) -> str:
    """Settings as TOML, each with its origin, in a form that `-c` accepts. Passwords are masked."""
    shown = {
        name: f"{name} = {_toml(value)}  # {loaded.origins[name]}"
        for name, value in flatten(loaded.settings).items()
        if name not in loaded.settings.HIDDEN and value is not None and (name in role.important or not important_only)
    }
    plain = [line for name, line in shown.items() if "." not in name]
    nested = [line for name, line in shown.items() if "." in name]
    return "\n".join(plain + nested) + "\n"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(service.EXIT_NOT_STARTED, f"error: {message}; {self.prog} -h explains the options\n")


def _parse_arguments(role: RoleDefinition[S], arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; ends the process on `-h` and on errors."""
    parser = _Parser(prog=f"ortoo-{role.name}", description=role.about, epilog=role.epilog)
    parser.add_argument("-c", dest="file", type=Path, metavar="FILE", help="settings file, TOML")
    parser.add_argument("-n", dest="namesrv", metavar="HOST:PORT", help="name servers, several separated by ;")
    parser.add_argument("--version", action="version", version=f"{parser.prog} {process_version()}")
    parser.add_argument("-p", dest="print_all", action="store_true", help="print all settings and where they come from")
    parser.add_argument("-m", dest="print_important", action="store_true", help="print the important settings")
    return parser.parse_args(arguments)


def _enter_home(environ: Mapping[str, str]) -> None:
    home = environ.get(HOME)
    if home is None:
        return
    try:
        os.chdir(home)
    except OSError as error:
        raise Invalid(
            f"{home!r} cannot be entered: {error.strerror}; make this folder, or unset {HOME} to use the current one",
            field=HOME,
        ) from error


def _toml(value: Any) -> str:
    """A value in the syntax of a settings file; passwords in URLs are masked."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    text = format_value(value)
    if isinstance(value, int | float):
        return text
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
