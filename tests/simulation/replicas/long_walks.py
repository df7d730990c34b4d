"""The explorer at any length: no walk may break an invariant, and each ends with a committed message.

python -m tests.simulation.replicas.long_walks [--seeds N] [NAME...]
"""

import argparse
from collections.abc import Callable, Sequence

from ortoo.enode.replication.protocol.rules import Rules
from tests.simulation.replicas.breadth import around, breadth_first, first_world
from tests.simulation.replicas.walk import SCENARIOS, Walk, first_violation


def main(arguments: Sequence[str] | None = None, say: Callable[[str], None] = print) -> int:
    """Walk all scenarios, or those named; returns the number of failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(arguments)
    wrong = 0
    for name in options.names or SCENARIOS:
        found = first_violation(SCENARIOS[name], Rules(), seeds=range(1, options.seeds + 1), recovers=True)
        wrong += found is not None
        say(f"{name}: {options.seeds} walks, " + (f"seed {found[0]}: {found[1]}" if found else "nothing lost"))
    states = breadth_first(first_world(Rules()), states_max=20 * options.seeds, epochs_max=2, messages_max=1)
    states += sum(
        around(Walk(SCENARIOS["three members"], seed, Rules()), states_max=2_000)
        for seed in range(1, options.seeds // 100)
    )
    say(f"every next step: {states} states, nothing lost")
    return wrong


if __name__ == "__main__":
    raise SystemExit(main())
