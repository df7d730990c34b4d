"""The gateway's parts, made from what the snode has."""

from dataclasses import dataclass

from ortoo.common.background import Background
from ortoo.common.clock import Clock
from ortoo.common.randomness import Randomness
from ortoo.snode.delayed import Delayed
from ortoo.snode.directory import Directory
from ortoo.snode.directory_watch import DirectoryWatch
from ortoo.snode.enode_links import EnodeLinks
from ortoo.snode.name_server import NameServer
from ortoo.snode.offsets import Offsets
from ortoo.snode.popping import Popping
from ortoo.snode.publisher import Publisher
from ortoo.snode.reading import Reading
from ortoo.snode.rocketmq.authentication import Authentication
from ortoo.snode.rocketmq.caller import Caller, Context, caller_of, headers_of
from ortoo.snode.rocketmq.clients import Clients
from ortoo.snode.rocketmq.leases import Leases
from ortoo.snode.rocketmq.offsets import QueueOffsets
from ortoo.snode.rocketmq.presence import Presence
from ortoo.snode.rocketmq.recalling import Recalling
from ortoo.snode.rocketmq.receiving import Receiving
from ortoo.snode.rocketmq.results import Results
from ortoo.snode.rocketmq.routing import Routing
from ortoo.snode.rocketmq.sending import Sending
from ortoo.snode.rocketmq.settling import Settling
from ortoo.snode.rocketmq.starting import Starting
from ortoo.snode.rocketmq.telemetry import Telemetry
from ortoo.snode.rocketmq.transacting import Transacting
from ortoo.snode.transactions import Transactions


@dataclass(frozen=True, slots=True)
class Gateway:
    """One part for each concern of the protocol."""

    clients: Clients
    authentication: Authentication
    routing: Routing
    presence: Presence
    sending: Sending
    transacting: Transacting
    receiving: Receiving
    settling: Settling
    recalling: Recalling
    offsets: QueueOffsets
    leases: Leases
    telemetry: Telemetry
    results: Results

    async def admit(self, context: Context) -> Caller:
        """Who calls, once the signature is checked. Errors: Refused."""
        headers = headers_of(context)
        await self.authentication.check(headers)
        return caller_of(context, headers)

    def drain(self) -> None:
        """End the telemetry streams; their clients connect to another snode."""
        self.clients.end_streams()


def make_gateway(
    directory: Directory,
    watch: DirectoryWatch,
    name_server: NameServer,
    links: EnodeLinks,
    offsets: Offsets,
    publisher: Publisher,
    popping: Popping,
    reading: Reading,
    delayed: Delayed,
    transactions: Transactions,
    background: Background,
    *,
    advertised_address: str,
    authenticates: bool,
    clock: Clock,
    randomness: Randomness,
) -> Gateway:
    """Put the parts together."""
    clients, results = Clients(), Results(randomness)
    leases = Leases(popping, clock)
    transacting = Transacting(transactions, clients)
    return Gateway(
        clients,
        Authentication(name_server, clock, enabled=authenticates),
        Routing(watch, advertised_address),
        Presence(clients, leases, transacting, clock),
        Sending(watch, publisher, transacting, clients, clock),
        transacting,
        Receiving(directory, popping, clients, leases, Starting(watch, reading), clock),
        Settling(directory, popping, leases),
        Recalling(watch, delayed),
        QueueOffsets(watch, links, offsets),
        leases,
        Telemetry(clients, directory, results, transacting, background, clock),
        results,
    )
