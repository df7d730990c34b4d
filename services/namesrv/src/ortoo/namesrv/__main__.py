"""The process `ortoo-namesrv`."""

import sys

from ortoo.common import logs, service
from ortoo.common.errors import OrtooError
from ortoo.namesrv import command_line
from ortoo.namesrv.app import open_namesrv


def main() -> int:
    """Do what the command line says; returns the exit code."""
    arguments = command_line.parse(sys.argv[1:])
    try:
        loaded = command_line.settings_of(arguments)
    except OrtooError as error:
        sys.stderr.write(f"error: {error}\n")
        return service.EXIT_REFUSED
    if arguments.print_settings:
        command_line.print_settings(loaded)
        return 0
    logs.configure(level=loaded.settings.log_level)
    return service.run(lambda: open_namesrv(loaded.settings))


if __name__ == "__main__":
    sys.exit(main())
