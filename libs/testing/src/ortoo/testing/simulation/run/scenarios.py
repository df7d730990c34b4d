"""All scenarios, by name."""

from collections.abc import Mapping

from ortoo.testing.simulation.strangers.hostile import Hostile
from ortoo.testing.simulation.strangers.operating import Operating
from ortoo.testing.simulation.workload.deduplicating import Deduplicating
from ortoo.testing.simulation.workload.delaying import Delaying
from ortoo.testing.simulation.workload.ordering import Ordering
from ortoo.testing.simulation.workload.parking import Parking
from ortoo.testing.simulation.workload.popping import Popping
from ortoo.testing.simulation.workload.pulling import Pulling
from ortoo.testing.simulation.workload.pushing import Pushing
from ortoo.testing.simulation.workload.rocketmq import RocketMq
from ortoo.testing.simulation.workload.scenario import Scenario
from ortoo.testing.simulation.workload.transacting import Transacting

SLEEPING: frozenset[str] = frozenset({Deduplicating.name})
"""Not drawn, because they always meet a defect that is known: a snode ends while an enode is away (B-002)."""
SCENARIOS: Mapping[str, type[Scenario]] = {
    one.name: one
    for one in (
        Deduplicating,
        Delaying,
        Hostile,
        Operating,
        Ordering,
        Parking,
        Popping,
        Pulling,
        Pushing,
        RocketMq,
        Transacting,
    )
}
