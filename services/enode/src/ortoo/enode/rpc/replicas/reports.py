"""Reports of this replica to every name server, and the leaders that name servers propose."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.errors import OrtooError
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.messages import read, write
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background, pause
from ortoo.common.process.clock import Clock
from ortoo.enode import log_events
from ortoo.enode.replication.driver import Driver
from ortoo.enode.replication.protocol.events import LeaderProposed
from ortoo.enode.replication.protocol.identity import ReplicaId
from ortoo.v1 import replica_report_pb2 as pb
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub

REPORT_INTERVAL_S = 0.5
"""How often a replica reports when nothing changes."""
REPORT_TIMEOUT_S = 1.0
_log = get_logger("replication")


@dataclass(eq=False)
class ReplicaReports:
    """Reports this replica's state to each name server independently. Answers contain the other replicas' addresses."""

    name_servers: NameServers
    channels: Channels
    report: Callable[[], pb.ReportReplicaRequest]
    """Builds the report, without the election that the replica requests."""
    background: Background
    clock: Clock
    driver: Driver | None = None
    """The driver; None while the log is being opened, when nothing is reported."""
    is_waiting: bool = False
    """Whether this is an empty disk, which reports only that it can be added."""
    addresses: dict[ReplicaId, pb.ReplicaAddress] = field(default_factory=dict)
    """The addresses of replicas, from name servers."""
    _has_reported: bool = False
    _due: dict[str, asyncio.Event] = field(default_factory=dict)
    _stubs: dict[str, NameServiceStub] = field(default_factory=dict)

    def report_now(self) -> None:
        """Report now, because something has changed."""
        for due in self._due.values():
            due.set()

    async def run(self) -> None:
        """Send reports to all name servers for ever."""
        tasks: dict[str, asyncio.Task[object]] = {}
        while True:
            changed, wanted = self.name_servers.changed, self.name_servers.addresses
            for address in [one for one in tasks if one not in wanted]:
                tasks.pop(address).cancel()
                self._due.pop(address, None)
                self._stubs.pop(address, None)
            for address in wanted:
                if address not in tasks:
                    self._due[address] = asyncio.Event()
                    tasks[address] = self.background.spawn(f"reports to {address}", self._report_periodically(address))
            await changed.wait()

    async def report_leaving(self) -> None:
        """Send all name servers the termination notice of this process, if it has reported to any.

        A process that never opened its log has no start of its own yet.
        """
        if not self._has_reported:
            return
        await asyncio.gather(*(self._report_once(address, is_leaving=True) for address in self.name_servers.addresses))

    async def _report_periodically(self, address: str) -> None:
        due, logged = self._due[address], set[type[OrtooError]]()
        while True:
            due.clear()
            if self.driver is not None or self.is_waiting:
                error = await self._report_once(address)
                if error is None:
                    logged.clear()
                elif type(error) not in logged:  # a name server that is not reached may refuse the report later
                    logged.add(type(error))
                    _log.emit(log_events.REPLICA_REPORT_FAILED_RETRYING, name_server=address, reason=str(error))
            await pause(REPORT_INTERVAL_S, due, self.clock)

    async def _report_once(self, address: str, *, is_leaving: bool = False) -> OrtooError | None:
        """Report to a name server. Returns the error if it does not accept the report."""
        driver, self._has_reported = self.driver, True
        request = self.report()
        request.is_leaving = is_leaving
        election_request = driver.current_election_request() if driver is not None else None
        if election_request is not None:
            request.suggested_leader.CopyFrom(write(pb.ReplicaId, election_request.leader))
            request.suggested_above_epoch = election_request.above
        try:
            with rpc_errors(f"name server {address}"):
                stub = self._stubs.get(address)
                if stub is None:  # it makes all methods of its service, which takes as long as a report
                    stub = self._stubs[address] = NameServiceStub(self.channels.channel_to(address))
                response = await stub.ReportReplica(request, timeout=REPORT_TIMEOUT_S)
        except OrtooError as error:
            return error
        for one in response.replicas:
            self.addresses[read(ReplicaId, one.replica)] = one
        if driver is not None and driver is self.driver:
            if response.HasField("proposal"):
                driver.post(LeaderProposed(response.proposal.epoch, read(ReplicaId, response.proposal.leader)))
            # A name server whose database failed has dropped the request: repeat it until a higher epoch is known.
            known_epoch = max(driver.replica.hard_state.epoch, response.proposal.epoch)
            if (
                election_request is not None
                and driver.election_request is election_request
                and known_epoch > election_request.above
            ):
                driver.election_request = None
        return None
