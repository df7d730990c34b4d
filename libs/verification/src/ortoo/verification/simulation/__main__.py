"""python -m ortoo.verification.simulation: run one seed, or many."""

import sys

from ortoo.verification.simulation.run.command import main

sys.exit(main(sys.argv[1:]))
