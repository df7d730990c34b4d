"""The process `ortoo-namesrv`."""

import sys

from ortoo.common.process import front
from ortoo.namesrv.app import open_namesrv
from ortoo.namesrv.settings import IMPORTANT, load

ROLE = front.Role(
    name="namesrv",
    about="The name server of Ortoo: topics, groups, and which processes are there.",
    load=load,
    open=open_namesrv,
    important=IMPORTANT,
)


def main() -> int:
    """Do what the command line says; returns the exit code."""
    return front.main(ROLE, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
