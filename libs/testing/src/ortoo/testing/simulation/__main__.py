"""python -m ortoo.testing.simulation: run one seed, or many."""

import sys

from ortoo.testing.simulation.run.command import main

sys.exit(main(sys.argv[1:]))
