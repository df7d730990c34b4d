"""Reports of a replica to name servers."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.errors import Fenced, OrtooError, Unavailable
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.enode.replication.protocol.events import RequestElection
from ortoo.enode.rpc.replicas.reports import ReplicaReports
from ortoo.v1 import replica_report_pb2 as pb
from tests.unit.common.grpc.served import until
from tests.unit.enode.replication.protocol.test_replica import TWO

AT = "names:1"


class Answering:
    """A name server with a given answer."""

    def __init__(self) -> None:
        self.answer = pb.ReportReplicaResponse()
        self.heard: list[pb.ReportReplicaRequest] = []
        self.errors: list[OrtooError] = []

    async def ReportReplica(self, request: pb.ReportReplicaRequest, timeout: float) -> pb.ReportReplicaResponse:
        """Record a report."""
        self.heard.append(request)
        if self.errors:
            raise self.errors.pop(0)
        return self.answer


def proposing(epoch: int) -> pb.ReportReplicaResponse:
    """An answer that proposes the second replica."""
    return pb.ReportReplicaResponse(proposal=pb.Proposal(epoch=epoch, leader=pb.ReplicaId(number=2, disk="disk-2")))


async def test_a_suggestion_is_told_until_an_epoch_above_it_is_known() -> None:
    """A name server whose database failed dropped the request: it must be repeated, or no leader would be proposed."""
    names, driver = Answering(), SimpleNamespace()
    async with Background("test") as background, Channels() as channels:
        reports = ReplicaReports(NameServers(AT), channels, pb.ReportReplicaRequest, background, SystemClock())
        told: Any = driver
        reports.driver, reports._stubs[AT] = told, names  # type: ignore[assignment]
        for ends in ("proposal", "promise"):
            driver.post, driver.replica = lambda event: None, SimpleNamespace(hard_state=SimpleNamespace(epoch=4))
            driver.election_request, names.answer = RequestElection(TWO.replica, 4), pb.ReportReplicaResponse()
            driver.current_election_request = lambda: driver.election_request
            names.heard.clear()
            await reports._report_once(AT)
            names.answer = proposing(4)  # an earlier epoch
            await reports._report_once(AT)
            if ends == "proposal":
                names.answer = proposing(5)
            else:
                driver.replica.hard_state.epoch = 5
            await reports._report_once(AT)
            await reports._report_once(AT)
            assert [one.suggested_leader.number for one in names.heard] == [2, 2, 2, 0]
        driver.election_request, driver.current_election_request = (
            RequestElection(TWO.replica, 5),
            lambda: None,
        )  # its leader is followed
        await reports._report_once(AT)
        assert not names.heard[-1].HasField("suggested_leader")


async def test_a_process_that_was_never_reported_takes_nothing_back() -> None:
    """Its disk may still have the number of an earlier start, which is no start of this process."""
    names = Answering()
    async with Background("test") as background, Channels() as channels:
        reports = ReplicaReports(NameServers(AT), channels, pb.ReportReplicaRequest, background, SystemClock())
        reports._stubs[AT] = names  # type: ignore[assignment]
        await reports.report_leaving()
        assert not names.heard
        await reports._report_once(AT)
        await reports.report_leaving()
        assert [one.is_leaving for one in names.heard] == [False, True]


async def test_a_refusal_after_an_outage_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    """It tells what to do with the disk. Each kind of error is logged once until a report is accepted."""
    names = Answering()
    names.errors = [Unavailable("no route"), Fenced("a later start"), Unavailable("no route"), Fenced("a later start")]
    async with Background("test") as background, Channels() as channels:
        reports = ReplicaReports(NameServers(AT), channels, pb.ReportReplicaRequest, background, SystemClock())
        reports._stubs[AT], reports.is_waiting = names, True  # type: ignore[assignment]
        background.spawn("reports", reports.run())
        with caplog.at_level(logging.WARNING):
            while names.errors:
                heard = len(names.heard)
                reports.report_now()
                await until(lambda heard=heard: len(names.heard) > heard)  # type: ignore[misc]
    assert caplog.text.count("no route") == caplog.text.count("a later start") == 1
