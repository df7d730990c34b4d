"""The process `ortoo-snode`."""

import sys

from ortoo.common.cluster.live_settings import LiveSettings
from ortoo.common.process import front
from ortoo.snode.app import open_snode
from ortoo.snode.settings import IMPORTANT, load

ROLE = front.Role(
    name="snode",
    about="The proxy of Ortoo, where clients connect.",
    load=load,
    open=lambda loaded, load_again: open_snode(loaded.settings, live=LiveSettings(loaded, load_again)),
    important=IMPORTANT,
)


def main() -> int:
    """Do what the command line says; returns the exit code."""
    return front.main(ROLE, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
