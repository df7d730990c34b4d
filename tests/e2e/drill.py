"""What drills have in common that are run from the command line."""

import sys


def say(text: str) -> None:
    """A line for whoever watches, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
