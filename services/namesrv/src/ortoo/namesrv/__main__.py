"""The process `ortoo-namesrv`: the server, and the tools for backup and restore of its directory."""

import os
import sys
from collections.abc import Sequence

from ortoo.common.cluster.dynamic_settings import DynamicSettings
from ortoo.common.errors import OrtooError
from ortoo.common.machine.descriptors import raise_limit
from ortoo.common.machine.standard_files import print_error
from ortoo.common.process import entry_point, service
from ortoo.namesrv.app import open_namesrv
from ortoo.namesrv.settings import IMPORTANT, load

TOOLS = ("backup", "restore")
ROLE = entry_point.RoleDefinition(
    name="namesrv",
    about="The name server of Ortoo: topics, groups, and the registered processes.",
    load=load,
    open=lambda loaded, load_again: open_namesrv(loaded.settings, live=DynamicSettings(loaded, load_again)),
    important=IMPORTANT,
    epilog="`ortoo-namesrv backup FILE` writes the whole directory to a file, also while it is served; "
    "`ortoo-namesrv restore FILE` restores it into an empty database. Each has its own -h.",
)


def main() -> int:
    """Run the command line; returns the exit code."""
    if sys.argv[1:] and sys.argv[1] in TOOLS:
        return entry_point.run_command(lambda: run_tool(sys.argv[1], sys.argv[2:]))
    return entry_point.run_command(lambda: entry_point.main(ROLE, sys.argv[1:]))


def run_tool(name: str, arguments: Sequence[str]) -> int:
    """Run the tool `name`, one of TOOLS, on the configured database; returns the exit code."""
    from ortoo.common.process.clock import SystemClock
    from ortoo.common.process.randomness import Randomness
    from ortoo.namesrv.offline.backup import backup, parse_arguments, restore

    raise_limit()
    chosen = parse_arguments(arguments, name)
    file = chosen.backup_file.absolute()
    try:
        settings = entry_point.settings_loader(ROLE, chosen.file, os.environ, {})().settings
        if name == "backup":
            said = backup(settings.database_url, settings.data_dir, file)
        else:
            now_ms = SystemClock().now_ms()
            said = restore(settings.database_url, settings.data_dir, file, Randomness().uuid_text(), now_ms)
    except OrtooError as error:
        print_error(str(error))
        return service.exit_code_of(error)
    except OSError as error:
        print_error(f"{error.filename or file}: {error.strerror}")
        return service.EXIT_INVALID_SETTINGS
    sys.stdout.write(f"{said}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
