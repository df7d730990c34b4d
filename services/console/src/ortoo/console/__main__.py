"""The process `ortoo-console`."""

import sys

from ortoo.common.process import entry_point
from ortoo.console.app import open_console
from ortoo.console.settings import IMPORTANT, load

ROLE = entry_point.RoleDefinition(
    name="console",
    about="The web console of Ortoo.",
    load=load,
    open=lambda loaded, _: open_console(loaded.settings),
    important=IMPORTANT,
)


def main() -> int:
    """Run the command line; returns the exit code."""
    return entry_point.run_command(lambda: entry_point.main(ROLE, sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
