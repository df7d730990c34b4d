"""The process `ortoo-enode`: the server, and the tools that inspect, repair, back up and restore a store offline."""

import importlib
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from ortoo.common.cluster.dynamic_settings import DynamicSettings
from ortoo.common.errors import OrtooError
from ortoo.common.machine.descriptors import raise_limit
from ortoo.common.machine.standard_files import print_error
from ortoo.common.process import entry_point, service
from ortoo.common.process.service import Running
from ortoo.common.process.settings import LoadedSettings
from ortoo.enode.app import open_enode
from ortoo.enode.settings import IMPORTANT, EnodeSettings, load

TOOLS = ("inspect", "repair", "elect", "backup", "restore")


def open_process(
    loaded: LoadedSettings[EnodeSettings], load_again: Callable[[], LoadedSettings[EnodeSettings]]
) -> AbstractAsyncContextManager[Running]:
    """The enode, or one of its replicas."""
    return open_enode(loaded.settings, live=DynamicSettings(loaded, load_again))


ROLE = entry_point.RoleDefinition(
    name="enode",
    about="A storage node of Ortoo.",
    load=load,
    open=open_process,
    important=IMPORTANT,
    epilog="`ortoo-enode inspect DIR` reads a store without the server. `ortoo-enode repair DIR` lists the damage of "
    "one, and repairs it on request. `ortoo-enode elect DIR --lose` continues with one disk of a set that lost its "
    "majority. `ortoo-enode backup DIR BACKUP` copies a store, also while it is served, and `ortoo-enode restore "
    "BACKUP DIR` makes a store of the copy. Each has its own -h.",
)


def main() -> int:
    """Run the command line; returns the exit code."""
    if sys.argv[1:] and sys.argv[1] in TOOLS:
        return entry_point.run_command(lambda: run_tool(sys.argv[1], sys.argv[2:]))
    return entry_point.run_command(lambda: entry_point.main(ROLE, sys.argv[1:]))


def run_tool(name: str, arguments: Sequence[str]) -> int:
    """Run one of TOOLS, which parses the rest of the command line."""
    raise_limit()
    module = importlib.import_module(f"ortoo.enode.offline.{name}")
    try:
        code: int = module.main(arguments)
    except OrtooError as error:
        print_error(str(error))
        return service.EXIT_INVALID_SETTINGS
    except BrokenPipeError:
        raise
    except OSError as error:
        print_error(f"{error.filename or ' '.join(arguments)}: {error.strerror}")
        return service.EXIT_INVALID_SETTINGS
    return code


if __name__ == "__main__":
    sys.exit(main())
