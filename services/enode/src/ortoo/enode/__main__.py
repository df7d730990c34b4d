"""The process `ortoo-enode`: the server, and what reads or mends a store without one."""

import sys

from ortoo.common import logs, service
from ortoo.common.errors import OrtooError
from ortoo.enode import command_line
from ortoo.enode.app import open_enode


def main() -> int:
    """Do what the command line says; returns the exit code."""
    arguments = command_line.parse(sys.argv[1:])
    if arguments.command:
        return command_line.run_tool(arguments)
    try:
        loaded = command_line.settings_of(arguments)
    except OrtooError as error:
        sys.stderr.write(f"error: {error}\n")
        return service.EXIT_REFUSED
    if arguments.print_all or arguments.print_important:
        command_line.print_settings(loaded, important_only=not arguments.print_all)
        return 0
    logs.configure(level=loaded.settings.log_level)
    return service.run(lambda: open_enode(loaded.settings))


if __name__ == "__main__":
    sys.exit(main())
