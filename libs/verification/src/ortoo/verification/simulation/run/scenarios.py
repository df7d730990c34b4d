"""All scenarios, by name."""

from collections.abc import Mapping

from ortoo.verification.simulation.disturbances.hostile_clients import HostileScenario
from ortoo.verification.simulation.disturbances.operators import OperatorScenario
from ortoo.verification.simulation.reads.reading import ReadScenario
from ortoo.verification.simulation.workload.cancelling import CancellationScenario
from ortoo.verification.simulation.workload.deduplicating import DeduplicationScenario
from ortoo.verification.simulation.workload.delaying import DelayScenario
from ortoo.verification.simulation.workload.ordering import OrderingScenario
from ortoo.verification.simulation.workload.parking import ParkingScenario
from ortoo.verification.simulation.workload.popping import PopScenario
from ortoo.verification.simulation.workload.pulling import PullScenario
from ortoo.verification.simulation.workload.pushing import PushScenario
from ortoo.verification.simulation.workload.rocketmq import RocketMqScenario
from ortoo.verification.simulation.workload.scenario import Scenario
from ortoo.verification.simulation.workload.transacting import TransactionScenario

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
        ReadScenario,
        RocketMqScenario,
        TransactionScenario,
    )
}
WITH_REPLICAS = ReadScenario.name
"""Takes part in each run with replicas, and in others only on request."""
