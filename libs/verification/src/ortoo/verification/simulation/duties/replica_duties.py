"""Checks each message of a replica against the disk of its sender, and each truncation against its record."""

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ortoo.enode.app import RunningEnode
from ortoo.enode.disk.clean_stop import FILE_NAME as CLEAN_NAME
from ortoo.enode.disk.clean_stop import decode_clean_stop
from ortoo.enode.log.frame import ALIGNMENT_BYTES
from ortoo.enode.replication.driver import Driver
from ortoo.testing.disks.disk_image import Operation, RemoveFile, RenameFile, WriteFile
from ortoo.testing.memory_grpc import Packet
from ortoo.testing.simulation.cluster.cluster import SimulatedCluster
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from ortoo.testing.simulation.violations import Violations
from ortoo.v1 import replication_pb2 as pb
from ortoo.v1.replica_report_pb2 import ReportReplicaRequest
from ortoo.verification.simulation.duties.durable_log import SEGMENT_SUFFIX, DurableLog, has_frames

METHOD = "/ortoo.v1.ReplicationService/Exchange"
REPORT_METHOD = "/ortoo.v1.NameService/ReportReplica"
SENDERS = {
    "request_vote": "candidate",
    "vote": "voter",
    "heartbeat": "leader",
    "heartbeat_response": "follower",
    "log_match_request": "follower",
    "log_matched": "follower",
    "append_ack": "follower",
}
"""The messages that name their sender, and the field. Each of them, and of OF_LEADER, relies on the sender's vote."""
OF_LEADER = frozenset({"frames", "log_match_response", "lease_released"})


class ReplicaDuties:
    """The duties of the replicas of one enode."""

    def __init__(self, cluster: SimulatedCluster, findings: Violations) -> None:
        """Watch the network and the disks of this cluster from now on."""
        self.is_disk_lost = False
        """Whether a disk was emptied. Then fewer disks than a majority may have what was committed before."""
        self._findings = findings
        self._machines = {one.name: one for one in cluster.replicas}
        self._logs = {name: DurableLog(one.disk, Path("/") / name) for name, one in self._machines.items()}
        self._committed = 0
        self._starts: dict[tuple[str, int], Callable[[], Driver | None]] = {}
        cluster.world.network.watchers[self._on_packet] = None
        for name, machine in self._machines.items():
            machine.disk.applying = partial(self._on_operation, name)

    def undurable(self) -> str:
        """A replica whose disk may lose flushed bytes, as text; empty if there is none. The replicas are at rest."""
        for name, machine in self._machines.items():
            driver = _driver(machine)
            if driver is not None and (what := self._logs[name].lacks(driver.replica.log.flushed, 1 << 62)):
                return f"{name} lacks flushed bytes: {what}"
        return ""

    # messages

    def _on_packet(self, source: str, target: str, packet: Packet) -> bool:
        if packet.method == REPORT_METHOD and packet.message and source in self._machines:
            self._check_report(source, ReportReplicaRequest.FromString(packet.message))
        if packet.method != METHOD or not packet.message or source not in self._machines:
            return False
        message = pb.ReplicaMessage.FromString(packet.message)
        kind = message.WhichOneof("content")
        driver = _driver(self._machines[source])
        if kind is None or driver is None or target not in self._machines:
            return False
        self._check_shown(source, driver)
        log, content = self._logs[source], getattr(message, kind)
        hard_state = log.hard_state()
        if kind in SENDERS:
            self._check_start(source, driver, getattr(content, SENDERS[kind]).incarnation, hard_state["incarnation"])
        if kind in SENDERS or kind in OF_LEADER:
            self._check_vote(source, kind, content.epoch, hard_state, self._machines[target])
            self._check_positions(source, kind, content, is_current=content.epoch == hard_state["epoch"])
        return False

    def _check_start(self, name: str, driver: Driver, incarnation: int, durable: int) -> None:
        if incarnation != durable:
            self.broken(f"{name} sends as start {incarnation} and has stored start {durable}")
        if self._starts.setdefault((name, incarnation), weakref.ref(driver))() is not driver:
            self.broken(f"{name} has opened its log twice as start {incarnation}")

    def _check_report(self, name: str, report: ReportReplicaRequest) -> None:
        """Name servers refuse a start that is not above a reported one. A report may wait for its connection."""
        durable = self._logs[name].hard_state().get("incarnation", 0)
        if report.incarnation > durable:
            self.broken(f"{name} reports as start {report.incarnation} and has stored start {durable}")

    def _check_vote(self, name: str, kind: str, epoch: int, hard_state: Mapping[str, Any], to: ReplicaMachine) -> None:
        stored, (voted, *_) = hard_state["epoch"], hard_state["leader"]
        if epoch > stored:
            self.broken(f"{name} sends {kind} of epoch {epoch} to {to.name}, and has stored a vote in {stored}")
        elif kind == "vote" and epoch == stored and voted != to.number:
            self.broken(f"{name} sends its vote of epoch {epoch} to {to.name}, and has stored one for replica {voted}")

    def _check_positions(self, name: str, kind: str, content: Any, *, is_current: bool) -> None:
        """With a later vote than that of the message, the log may have been truncated since."""
        log = self._logs[name]
        flushed: int = getattr(content, "flushed", 0)
        if is_current and flushed and (what := log.lacks(flushed)):
            self.broken(f"{name} sends {kind} with {flushed} bytes on its disk, and its disk lacks some: {what}")
        if is_current and kind == "log_matched" and (mark := log.mark()) > content.position:
            self.broken(f"{name} has a log up to {content.position}, and a durable mark at {mark}")
        if is_current and kind == "log_matched" and log.frame_at(content.position) is not None:
            self.broken(f"{name} has a log up to {content.position}, and its disk has later frames")
        if kind in ("frames", "heartbeat"):
            self._check_committed(name, content.committed, f"{kind} of {name}")

    def _check_shown(self, name: str, driver: Driver) -> None:
        shown, committed = driver.log.engine.appender.commit_limit, driver.replica.log.committed
        if shown is not None and shown > max(committed, driver.log.summary.committed):
            self.broken(f"{name} shows its log up to {shown}, and knows that {committed} is committed")

    def _check_committed(self, name: str, position: int, where: str) -> None:
        if position <= self._committed:
            return
        driver = _driver(self._machines[name])
        majority = driver.replica.log.configuration.majority if driver is not None else 1
        has_frame = self._logs[name].has_frame_before(position)
        durable = [
            one
            for one, log in self._logs.items()
            if not log.lacks(position) and log.has_frame_before(position) >= has_frame
        ]
        if len(durable) < majority and not self.is_disk_lost:
            self.broken(f"{where} calls {position} committed, which only the disks of {durable} have")
        self._committed = position

    # disks

    def _on_operation(self, name: str, operation: Operation) -> None:
        machine = self._machines[name]
        if isinstance(operation, RenameFile) and operation.target.name == CLEAN_NAME:
            clean = decode_clean_stop(machine.disk.content(operation.source), 0)
            if clean is not None:
                self._check_committed(name, clean.end_position, f"the marker of a clean stop of {name}")
        if _driver(machine) is None:
            return  # a start removes what no earlier start called durable
        if isinstance(operation, RemoveFile) and operation.path.suffix == SEGMENT_SUFFIX:
            bases = [int(one.stem) for one in machine.disk.files() if one.suffix == SEGMENT_SUFFIX]
            if len(bases) > 1 and int(operation.path.stem) == max(bases):
                self._check_truncation(name, int(operation.path.stem))
        elif isinstance(operation, WriteFile) and len(operation.data) >= ALIGNMENT_BYTES and not any(operation.data):
            path = machine.disk.path_of(operation.number)
            if path is not None and path.suffix == SEGMENT_SUFFIX:
                begin, end = operation.position, operation.position + len(operation.data)
                if has_frames(machine.disk.content(path)[begin:end], int(path.stem) + begin):
                    self._check_truncation(name, int(path.stem) + begin)

    def _check_truncation(self, name: str, position: int) -> None:
        recorded = self._logs[name].pending_truncation()
        if not 0 <= recorded <= position:
            self.broken(f"{name} removes its log from {position} on without a durable record of the truncation")

    def broken(self, what: str) -> None:
        """A duty is broken."""
        self._findings.add("duties of a replica", what)


def _driver(machine: ReplicaMachine) -> Driver | None:
    running = machine.running
    return running.process.driver if machine.alive and isinstance(running, RunningEnode) else None
