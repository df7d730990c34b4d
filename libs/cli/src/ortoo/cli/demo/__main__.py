"""`make demo`: every flight of 2013 through three real processes, two of which are killed on the way."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from ortoo.cli.demo.journey import Journey
from ortoo.cli.demo.summary import print_summary
from ortoo.common.errors import OrtooError
from ortoo.common.process.logs import configure


def main() -> int:
    """Run the demo; the exit code is 0 when every flight arrived and 1 otherwise."""
    parser = argparse.ArgumentParser(prog="ortoo demo", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="keep the stores and logs here (default: a temporary folder)")
    parser.add_argument("--no-kill", action="store_true", help="leave the processes alone")
    arguments = parser.parse_args()
    # Broken connections are what the demo makes on purpose; the clients' warnings about them would tear the bars.
    configure(level="error")
    with tempfile.TemporaryDirectory(prefix="ortoo-demo-") as temporary:
        folder: Path = arguments.data_dir or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            outcome = asyncio.run(Journey(folder, kill=not arguments.no_kill).run())
        except OrtooError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        print_summary(outcome)
        return 0 if outcome.right else 1


if __name__ == "__main__":
    sys.exit(main())
