"""All scenarios, by name."""

from collections.abc import Mapping

from ortoo.testing.simulation.disturbances.hostile_clients import HostileScenario
from ortoo.testing.simulation.disturbances.operators import OperatorScenario
from ortoo.testing.simulation.workload.cancelling import CancellationScenario
from ortoo.testing.simulation.workload.deduplicating import DeduplicationScenario
from ortoo.testing.simulation.workload.delaying import DelayScenario
from ortoo.testing.simulation.workload.ordering import OrderingScenario
from ortoo.testing.simulation.workload.parking import ParkingScenario
from ortoo.testing.simulation.workload.popping import PopScenario
from ortoo.testing.simulation.workload.pulling import PullScenario
from ortoo.testing.simulation.workload.pushing import PushScenario
from ortoo.testing.simulation.workload.rocketmq import RocketMqScenario
from ortoo.testing.simulation.workload.scenario import Scenario
from ortoo.testing.simulation.workload.transacting import TransactionScenario

SCENARIOS: Mapping[str, type[Scenario]] = {
    one.name: one
    for one in (
        CancellationScenario,
        DeduplicationScenario,
        DelayScenario,
        HostileScenario,
        OperatorScenario,
        OrderingScenario,
        ParkingScenario,
        PopScenario,
        PullScenario,
        PushScenario,
        RocketMqScenario,
        TransactionScenario,
    )
}
