"""All scenarios, by name."""

from collections.abc import Mapping

from ortoo.testing.simulation.workload.pushing import Pushing
from ortoo.testing.simulation.workload.scenario import Scenario

SCENARIOS: Mapping[str, type[Scenario]] = {one.name: one for one in (Pushing,)}
