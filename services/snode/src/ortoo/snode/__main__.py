"""The process `ortoo-snode`."""

import sys

from ortoo.common import logs, service
from ortoo.common.errors import OrtooError
from ortoo.snode import command_line
from ortoo.snode.app import open_snode


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
    return service.run(lambda: open_snode(loaded.settings))


if __name__ == "__main__":
    sys.exit(main())
