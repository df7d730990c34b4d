"""A scenario: a topic, its clients, and the conditions that must hold when everything has come to rest."""

from collections.abc import Sequence

from ortoo.client import Client
from ortoo.common.process.randomness import Randomness
from ortoo.testing.simulation.cluster.cluster import SimulatedCluster
from ortoo.verification.simulation.oracle.oracle import Oracle
from ortoo.verification.simulation.oracle.sent import keys
from ortoo.verification.simulation.workload.application import Application, Work

LAG_S = 60.0
BALANCE_S = 75.0
"""A queue lock of a killed client lasts 60 s from the last election.

The next group member requests it every 3 s, and after a rebalance.
"""


class Scenario:
    """The base of all scenarios. A subclass creates its applications in `build`."""

    name = ""

    def __init__(
        self, cluster: SimulatedCluster, oracle: Oracle, *, rate_per_s: float, is_faultless: bool = False
    ) -> None:
        """Send `rate_per_s` messages a second, all senders together; `is_faultless` for runs without faults."""
        self.cluster = cluster
        self.oracle = oracle
        self.rate_per_s = rate_per_s
        self.is_faultless = is_faultless
        self.chance: Randomness = oracle.world.random_streams.stream(f"scenario {self.name}")
        self.senders: list[Application] = []
        self.consumers: list[Application] = []
        self.groups: dict[str, str] = {}
        """Groups that must receive everything, and the topic of each."""
        self.build()

    def build(self) -> None:
        """Create the applications."""
        raise NotImplementedError

    async def prepare(self, client: Client) -> None:
        """Create what the applications need before they start."""
        await client.admin.ensure_topic(self.name, queue_count=2)

    def application(self, name: str, work: Work) -> Application:
        """A machine of this scenario."""
        return Application(self.oracle, f"{self.name}-{name}", self.cluster.addresses, work)

    @property
    def applications(self) -> Sequence[Application]:
        """All machines of it, consumers first."""
        return [*self.consumers, *self.senders]

    def unsettled(self) -> str:
        """The remaining work as text; empty when everything has come to rest."""
        for group, topic in self.groups.items():
            if missing := self.oracle.received.missing(group, topic):
                return f"{group} did not get {keys(missing)} of {topic}"
        return ""

    async def check(self, client: Client) -> None:
        """Compare the servers' reports with the model, when everything has come to rest."""

    async def check_offsets(self, client: Client) -> None:
        """Check that no group has fallen behind its committed offset."""
        for group, topic in self.groups.items():
            asked_at_s = self.oracle.now_s()
            for one in (await client.admin.describe_lag(group, topic)).queues:
                self.oracle.offsets.read(group, one.queue, one.committed_offset, asked_at_s)

    async def check_balance(self, client: Client, members: Sequence[Application]) -> None:
        """Check that the members of a group own all queues, each one once, evenly to within one."""
        described = await client.admin.describe_topic(self.name)
        everything = sorted(item.queue for item in described.queues)
        deadline_s = self.oracle.now_s() + BALANCE_S
        while True:
            counts = [len(member.queues()) for member in members]
            shared = sorted(queue for member in members for queue in member.queues())
            if shared == everything and max(counts) - min(counts) <= 1:
                return
            if self.oracle.now_s() > deadline_s:
                break
            await self.oracle.world.clock.sleep(1.0)
        names = ", ".join(f"{member.name} has {len(member.queues())}" for member in members)
        self.oracle.violations.add("groups are balanced", f"of {len(everything)} queues of {self.name} {names}")

    async def check_lag(self, client: Client, group: str) -> None:
        """Check that a group that finished everything has no lag, including messages stored without an answer."""
        deadline_s = self.oracle.now_s() + LAG_S
        while (
            lag := (await client.admin.describe_lag(group, self.name)).lag_messages
        ) and self.oracle.now_s() < deadline_s:
            await self.oracle.world.clock.sleep(1.0)
        if lag:
            self.oracle.violations.add("G8", f"{group} has acknowledged everything and {lag} are left")
