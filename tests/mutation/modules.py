"""The modules to mutate, and the fast tests that must notice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ENODE = "src/ortoo/enode"
SNODE = "src/ortoo/snode"


@dataclass(frozen=True, slots=True)
class Mutated:
    """A part of the product."""

    files: Sequence[str]
    """Patterns of files, below the folder that the services are merged in."""
    tests: Sequence[str]
    """Files and folders below `tests`."""


MODULES: Mapping[str, Mutated] = {
    "state": Mutated(
        [f"{ENODE}/state/*.py", f"{ENODE}/state/tables/*.py"],
        [
            "unit/enode/state",
            "unit/enode/pops",
            "unit/enode/store",
            "property/test_timers.py",
        ],
    ),
    "pops": Mutated(
        [f"{ENODE}/pops/{name}.py" for name in ("line", "lines", "leasing", "settling", "key_order")],
        [
            "unit/enode/pops",
            "contract/test_called_off_pops.py",
            "contract/test_g5_order.py",
            "contract/test_g8_pop.py",
            "contract/test_g9_dead_letters.py",
            "contract/test_expiry.py",
            "contract/test_pop_holes.py",
        ],
    ),
    "parking": Mutated(
        [f"{ENODE}/pops/parking.py"],
        ["contract/test_g9_dead_letters.py", "contract/test_expiry.py", "simulation/test_short_runs.py"],
    ),
    "push sessions": Mutated(
        [f"{SNODE}/push/*.py"],
        ["unit/snode/push"],
    ),
    "membership": Mutated(
        [f"{SNODE}/membership/{name}.py" for name in ("group_membership", "group_members", "assignment")],
        ["unit/snode/membership"],
    ),
    "access": Mutated(
        [f"{SNODE}/policy/{name}.py" for name in ("access_rules", "required_permissions", "principal")],
        ["unit/snode/policy"],
    ),
    "settlement activity": Mutated(
        [f"{SNODE}/rocketmq/receive/{name}.py" for name in ("settlement", "auto_renewal")],
        ["unit/snode/rocketmq", "simulation/test_short_runs.py"],
    ),
}
