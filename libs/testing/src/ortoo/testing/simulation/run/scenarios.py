"""All scenarios, by name."""

from collections.abc import Mapping

from ortoo.testing.simulation.disturbances.hostile_clients import Hostile
from ortoo.testing.simulation.disturbances.operators import Operating
from ortoo.testing.simulation.workload.cancelling import Cancelling
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

SCENARIOS: Mapping[str, type[Scenario]] = {
    one.name: one
    for one in (
        Cancelling,
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
