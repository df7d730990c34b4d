"""Numbers of operator pages are those of the code: each sentence is built from a constant or a default setting."""

import re
from pathlib import Path

import pytest

from ortoo.cli.cluster.draining import ROUTE_EXPIRY_S
from ortoo.client import ProducerSettings
from ortoo.common.cluster.dynamic_settings import HISTORY_MAX
from ortoo.common.grpc.channels import MESSAGE_BYTES_MAX
from ortoo.common.grpc.cluster_token import WINDOW_S
from ortoo.common.grpc.h2 import call as h2_call
from ortoo.common.grpc.h2 import connection as h2_connection
from ortoo.common.grpc.h2.limits import HEADER_MARGIN
from ortoo.common.grpc.layers.call_memory import CALL_BYTES, HEADER_BYTES_MAX
from ortoo.common.grpc.layers.observers import OBSERVERS_MAX, OBSERVERS_OF_ADDRESS_MAX
from ortoo.common.grpc.layers.waiting_calls import (
    ENDED_OF_CONNECTION_MAX,
    WAITING_BYTES_MAX,
    WAITING_BYTES_MIN,
    WAITING_PERCENT,
)
from ortoo.common.grpc.limits import connection_limits as limits
from ortoo.common.grpc.limits import full_ports
from ortoo.common.grpc.limits.connection_limits import ADDRESSES_LOGGED
from ortoo.common.grpc.limits.element_limits import MESSAGES, QUEUES, RANGES, SHORT
from ortoo.common.grpc.limits.inflation import BEGINNING_BYTES
from ortoo.common.grpc.limits.memory_guard import FULL_PERCENT, SHRINK_PERCENT
from ortoo.common.grpc.limits.raw_elements import BEGINNING_FIELDS_MAX
from ortoo.common.grpc.server import (
    IDLE_MS_MAX,
    PING_STRIKES_MAX,
    SET_UP_MS_MAX,
    STREAMS_OF_CONNECTION_MAX,
    GrpcServer,
)
from ortoo.common.logs.rate_limit import LOG_INTERVAL_S
from ortoo.common.machine.descriptors import Descriptors
from ortoo.common.telemetry.metrics import SERIES_MAX
from ortoo.common.telemetry.tracing import SPANS_MAX
from ortoo.console.cluster import prometheus
from ortoo.console.pages.messages.delayed import LINE_MESSAGES
from ortoo.console.web import sign_in_attempts
from ortoo.console.web.server import KEEP_ALIVE_S
from ortoo.enode.app import PEERS_MAX
from ortoo.enode.index.catalog import RUN_BYTES
from ortoo.enode.log.flushing.hang_watch import HANGING_FLUSH_S
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.observe.deferred_search import SEARCHED_MAX
from ortoo.enode.observe.disk_space import FREE_PERCENT_MIN
from ortoo.enode.observe.findings import LOSS_SHOWN_MS, RETENTION_USED_MAX
from ortoo.enode.pops.lines import CONSUMERS_REMEMBERED, WAITERS_MAX
from ortoo.enode.replication.driver import REFOLDS_MAX
from ortoo.enode.replication.in_sync import LAG_BYTES_MAX
from ortoo.enode.rpc.replicas.reports import REPORT_INTERVAL_S
from ortoo.enode.settings import EnodeSettings
from ortoo.enode.store.lock_table import DETACHED_GRACE_S, HEARTBEAT_TIMEOUT_S
from ortoo.namesrv.decisions.deletions import DELETIONS_MAX, DELETIONS_RETENTION_MS, UNCONFIRMED_MAX
from ortoo.namesrv.decisions.groups import GROUPS_MAX
from ortoo.namesrv.decisions.known_stores import LOG_END_INTERVAL_S
from ortoo.namesrv.decisions.proposals import PROPOSAL_TIMEOUT_S, TIMEOUT_DOUBLINGS_MAX
from ortoo.namesrv.decisions.routes.route_changes import DIRECTORY_BYTES_MAX
from ortoo.namesrv.decisions.topics import TOPICS_MAX
from ortoo.namesrv.directory.watches import ROUND_S, ROUND_S_PER_WATCHER
from ortoo.namesrv.settings import NamesrvSettings
from ortoo.snode.clients.locks import LOCK_LIFETIME_MS
from ortoo.snode.clients.pop_consumers import CONSUMERS_MAX, EXPIRY_S, LEASE_EXPIRY_S_MAX
from ortoo.snode.cluster.stream_ages import AFTER_CONNECTION, SPREAD
from ortoo.snode.membership.consumer_groups import REOPEN_TIMEOUT_S
from ortoo.snode.observe.trace_topic import WAITING_MAX
from ortoo.snode.push.evictions import SHOWN_S
from ortoo.snode.rpc.operators.explanation.deliveries import DEAD_LETTERS_MAX, SILENT_MS
from ortoo.snode.settings import SnodeSettings
from ortoo.snode.workers.process import QUERY_TIMEOUT_S

PAGES = Path(__file__).parents[2] / "docs/operations"
DAY_MS = 86_400_000
KIB, MIB = 1 << 10, 1 << 20

SENTENCES: tuple[tuple[str, str], ...] = (
    ("limits.md", f"| Headers of a call | {HEADER_BYTES_MAX // KIB} KiB |"),
    ("limits.md", f"| Request, inflated | {MESSAGE_BYTES_MAX // MIB} MiB |"),
    ("limits.md", f"| Elements of a list of settings, such as retry delays | {SHORT:,} |"),
    ("limits.md", f"such as keys and properties | {MESSAGES:,} |"),
    ("limits.md", f"| Elements of a list of queues, topics, offsets or locks | {QUEUES:,} |"),
    ("limits.md", f"| Elements of a list of ranges between a snode and an enode | {RANGES:,} |"),
    (
        "limits.md",
        f"health and reflection | {OBSERVERS_MAX} of a process, {OBSERVERS_OF_ADDRESS_MAX} from one address |",
    ),
    ("limits.md", f"health checks included | {WAITING_PERCENT} % of the budget,"),
    ("limits.md", f"the connection is closed after {ENDED_OF_CONNECTION_MAX} such calls |"),
    ("limits.md", f"has not taken, by its memory | {limits.PENDING_CALLS_MIN:,} to {limits.PENDING_CALLS_MAX:,} |"),
    ("limits.md", f"| Open calls of one connection | {STREAMS_OF_CONNECTION_MAX:,} |"),
    ("limits.md", f"the TLS handshake included | {SET_UP_MS_MAX // 1000} s |"),
    ("limits.md", f"| Time without a call | {IDLE_MS_MAX // 1000} s |"),
    ("limits.md", f"without data between | {PING_STRIKES_MAX} |"),
    ("limits.md", f"{limits.RESETS_PER_S_MAX:,} a second, with bursts of up to {limits.RESETS_TOGETHER_MAX:,} more"),
    (
        "limits.md",
        f"{limits.EMPTY_RESETS_PER_S_MAX} a second, with bursts of up to {limits.EMPTY_RESETS_TOGETHER_MAX:,} more",
    ),
    ("limits.md", f"while the port has {full_ports.FULL_PERCENT} % of its maximum number"),
    (
        "limits.md",
        f"{full_ports.NEVER_SENT_MS // 1000} s before the first byte, {full_ports.SILENT_MS // 1000} s after it",
    ),
    ("limits.md", f"until {full_ports.LEFT_PERCENT} % of the maximum number are left"),
    ("limits.md", f"one connection for each {limits.CONNECTION_BYTES // KIB} KiB of `memory_budget_bytes`"),
    ("limits.md", f"From {SHRINK_PERCENT} % of the limit it returns freed memory"),
    ("limits.md", f"From {FULL_PERCENT} % it rejects new work"),
    ("processes.md", f"the last {HISTORY_MAX} changes since the start"),
    ("descriptors.md", f"A replica takes at most {PEERS_MAX} connections at its replica port"),
    ("consumers.md", f"ends {DETACHED_GRACE_S:.0f} s after the connection of its snode to the enode breaks"),
    ("consumers.md", f"after {HEARTBEAT_TIMEOUT_S:.0f} s of silence from the snode"),
    ("consumers.md", f"ends after {LOCK_LIFETIME_MS // 1000} s unless it is renewed"),
    ("consumers.md", f"during a pop and for {EXPIRY_S:.0f} s after its last one"),
    ("consumers.md", f"at most {LEASE_EXPIRY_S_MAX / 60:.0f} min after the pop"),
    ("consumers.md", f"One snode lists at most {CONSUMERS_MAX:,} of these consumers"),
    ("consumers.md", f"at {AFTER_CONNECTION} to {AFTER_CONNECTION + SPREAD:.2f} times this age"),
    ("consumers.md", f"A consumer that has not returned after {REOPEN_TIMEOUT_S:.0f} s loses them"),
    ("moves.md", f"when no message has arrived for {ROUTE_EXPIRY_S:.0f} seconds"),
    ("moves.md", f"within {ProducerSettings().route_interval_ms / 1000:.0f} seconds, and send to the enode until then"),
    ("traces.md", f"In a batch with more than {SPANS_MAX} sampled messages only the first is traced"),
    ("traces.md", f"above {WAITING_MAX:,} pending records, new records are dropped"),
    ("limits.md", f"The first {BEGINNING_BYTES // KIB} KiB of a compressed request are inflated"),
    ("limits.md", f"Then the rest is inflated, up to {MESSAGE_BYTES_MAX // MIB} MiB."),
    ("limits.md", f"| Fields in the first 16 KiB of a compressed request, inflated | {BEGINNING_FIELDS_MAX:,} |"),
    ("limits.md", f"at least {WAITING_BYTES_MIN // MIB} MiB and at most {WAITING_BYTES_MAX // MIB} MiB;"),
    ("limits.md", f"a call counts as {CALL_BYTES // KIB} KiB, or as more with long headers"),
    ("capacity.md", f"at least {ROUND_S * 1000:.0f} ms, and at least {ROUND_S_PER_WATCHER * 1000:.1f} ms times"),
    ("capacity.md", f"| {WAITERS_MAX:,} open waits |"),
    ("capacity.md", f"holds {TOPICS_MAX:,} topics and {GROUPS_MAX:,} groups"),
    ("capacity.md", f"have at most {DIRECTORY_BYTES_MAX // MIB} MiB"),
    ("backups.md", f"at each start of the enode, and afterwards at most every {LOG_END_INTERVAL_S:.0f} s"),
    ("replicas.md", f"lacks at most {LAG_BYTES_MAX // MIB} MiB of the committed log"),
    (
        "replicas.md",
        f"A proposal has {PROPOSAL_TIMEOUT_S} seconds to succeed, and up to "
        f"{PROPOSAL_TIMEOUT_S * 2**TIMEOUT_DOUBLINGS_MAX:.0f} seconds after failed proposals",
    ),
    ("alerts.md", f"`store.headroom_bytes` ({StoreSettings().headroom_bytes // MIB} MiB)"),
    ("alerts.md", f"takes {RUN_BYTES} bytes for each pair of queue and segment"),
    ("capacity.md", f"{RUN_BYTES} bytes for each queue in each segment"),
    ("alerts.md", f"more series than its budget of {SERIES_MAX:,}"),
    ("metrics.md", f"One metric has at most {SERIES_MAX:,} series"),
    ("metrics.md", f"A worker that does not answer within {QUERY_TIMEOUT_S:.0f} s is missing"),
    ("limits.md", f"headers of more than {HEADER_MARGIN * HEADER_BYTES_MAX >> 10} KiB"),
    ("transport.md", f"waits up to {h2_call.REFUSAL_HELD_S} s for the first request"),
    ("console.md", f"the first {LINE_MESSAGES:,} also on a time line"),
    ("console.md", f"A query takes at most {prometheus.TIMEOUT_S:.0f} seconds"),
    ("console.md", f"Connections without a request are closed after {KEEP_ALIVE_S} seconds"),
    ("console.md", f"After {sign_in_attempts.FREE_OF_USER} failed attempts to sign in"),
    ("console.md", f"An address must pause after {sign_in_attempts.FREE_OF_ADDRESS}."),
    ("console.md", f"The pause begins with {sign_in_attempts.PAUSE_FIRST_S:.0f} second, doubles"),
    ("doctor.md", f"`disk hangs` (a write takes longer than {HANGING_FLUSH_S:.0f} s)"),
    ("doctor.md", f"looked up among the last {DEAD_LETTERS_MAX:,} dead letters"),
    ("access.md", f"A signature is valid for {SnodeSettings().signature_window_s / 60:.0f} minutes before and after"),
    ("directory.md", f"Name servers report a deletion for {DELETIONS_RETENTION_MS // DAY_MS} days"),
    ("directory.md", f"and at most {DELETIONS_MAX:,} deletions"),
    ("directory.md", f"stays in the database, up to {UNCONFIRMED_MAX:,} of them"),
    ("directory.md", f"`group_retention_ms` ({EnodeSettings().group_retention_ms // DAY_MS} days; 0 = never)"),
    ("doctor.md", f"The enode remembers the owners of the last {CONSUMERS_REMEMBERED:,} leases"),
    ("doctor.md", f"are looked up among the first {SEARCHED_MAX:,} on each enode"),
    ("doctor.md", f"has acknowledged nothing for {SILENT_MS // 1000} s"),
)
"""Pages, and texts that they must have."""


@pytest.mark.parametrize(("page", "text"), SENTENCES)
def test_a_number_of_a_page_is_that_of_the_code(page: str, text: str) -> None:
    """A changed constant needs a changed page."""
    assert text in (PAGES / page).read_text()


def test_shares_and_periods_in_words_are_those_of_the_code() -> None:
    """Numbers that pages write as words."""
    consumers, directory, doctor, alerts, inner_ports = (
        (PAGES / page).read_text()
        for page in ("consumers.md", "directory.md", "doctor.md", "alerts.md", "inner-ports.md")
    )
    assert SnodeSettings().connection_age_max_s == 1800
    assert "When a client's connection is half an hour old, give or take a tenth" in consumers
    assert NamesrvSettings().topic_deletion_grace_ms == DAY_MS
    assert "`topic_deletion_grace_ms` of the name server, by default a day" in directory
    assert RETENTION_USED_MAX == 0.75
    assert "has used more than three quarters of its retention" in doctor
    assert FREE_PERCENT_MIN == 10
    assert "a replica: less than a tenth is free" in doctor
    assert REFOLDS_MAX == 3
    assert "opens its log again from an earlier checkpoint, up to three times" in alerts
    assert LOSS_SHOWN_MS == DAY_MS
    assert "reports the loss for a day" in alerts
    assert SHOWN_S == 600
    assert "The finding remains for ten minutes" in alerts
    assert "ended during the last ten minutes" in doctor
    assert WINDOW_S == 600
    assert "is valid for ten minutes, so the clocks of two processes may differ by ten minutes" in inner_ports
    assert (StoreSettings().retention_interval_ms, StoreSettings().disk_check_interval_ms) == (10_000, 1_000)
    assert "which frees space within ten seconds" in alerts
    assert "accepts messages again within a second of having free space" in alerts
    assert REPORT_INTERVAL_S == 0.5
    assert "Replicas report to every name server at least twice a second" in (PAGES / "replicas.md").read_text()


async def test_each_reason_for_closed_connections_is_listed() -> None:
    """The label of the metric has no other values, and the log's interval and its addresses are those of the page."""
    page = (PAGES / "limits.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \|", page.partition("\n## Metrics and log lines\n")[2], re.MULTILINE)
    server = GrpcServer("127.0.0.1:0", [])
    of_h2 = "".join(path.read_text() for path in Path(h2_connection.__file__).parent.rglob("*.py"))
    found = {*server.ended_connections(), *re.findall(r'(?:abort|_close_soon)\("(\w+)"', of_h2)}
    assert sorted(listed) == sorted(found)
    assert LOG_INTERVAL_S == 10
    assert "at most every ten seconds" in page
    assert ADDRESSES_LOGGED == 5
    assert "the line names up to five addresses" in page


def test_the_table_of_descriptors_is_computed_by_the_code() -> None:
    """Each row has the limit, the reserve, the segment files and the connections of an enode."""
    page = (PAGES / "descriptors.md").read_text()
    found = re.findall(r"^\| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", page, re.MULTILINE)
    rows = [[int(number.replace(",", "")) for number in row] for row in found]
    assert len(rows) == 4
    for limit, *shares in rows:
        divided = Descriptors(limit, 1)
        assert shares == [divided.reserve, divided.files, divided.connections]
