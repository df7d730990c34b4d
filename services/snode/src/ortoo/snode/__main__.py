"""The process `ortoo-snode`."""

import sys

from ortoo.common.process import front
from ortoo.snode.app import open_snode
from ortoo.snode.settings import IMPORTANT, load

ROLE = front.Role(
    name="snode",
    about="The proxy of Ortoo, where clients connect.",
    load=load,
    open=open_snode,
    important=IMPORTANT,
    live=("log_level", "namesrv_address"),
)


def main() -> int:
    """Do what the command line says; returns the exit code."""
    return front.main(ROLE, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
