"""The process `ortoo-enode`: the server, and what reads or mends a store without one."""

import sys

from ortoo.common import logs, service
from ortoo.common.errors import OrtooError
from ortoo.enode import command_line
from ortoo.enode.app import open_enode


def main() -> int:
    """Do what the command line says; returns the exit code."""
    if sys.argv[1:] and sys.argv[1] in command_line.TOOLS:
        return command_line.run_tool(sys.argv[1], sys.argv[2:])
    arguments = command_line.parse(sys.argv[1:])
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
