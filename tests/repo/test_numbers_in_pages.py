"""Numbers of operator pages are those of the code: each sentence is built from a constant or a default setting."""

from pathlib import Path

import pytest

from ortoo.cli.cluster.draining import ROUTE_EXPIRY_S
from ortoo.common.cluster.dynamic_settings import HISTORY_MAX
from ortoo.common.grpc.channels import MESSAGE_BYTES_MAX
from ortoo.common.grpc.layers.call_memory import HEADER_BYTES_MAX
from ortoo.common.grpc.layers.observers import OBSERVERS_MAX, OBSERVERS_OF_ADDRESS_MAX
from ortoo.common.grpc.layers.waiting_calls import ENDED_OF_CONNECTION_MAX, WAITING_PERCENT
from ortoo.common.grpc.limits import connection_limits as limits
from ortoo.common.grpc.limits import full_ports
from ortoo.common.grpc.limits.element_limits import MESSAGES, QUEUES, RANGES, SHORT
from ortoo.common.grpc.limits.memory_guard import FULL_PERCENT, SHRINK_PERCENT
from ortoo.common.grpc.server import IDLE_MS_MAX, PING_STRIKES_MAX, SET_UP_MS_MAX, STREAMS_OF_CONNECTION_MAX
from ortoo.enode.observe.deferred_search import SEARCHED_MAX
from ortoo.enode.observe.disk_space import FREE_PERCENT_MIN
from ortoo.enode.observe.findings import RETENTION_USED_MAX
from ortoo.enode.pops.lines import CONSUMERS_REMEMBERED
from ortoo.enode.settings import EnodeSettings
from ortoo.enode.store.lock_table import DETACHED_GRACE_S, HEARTBEAT_TIMEOUT_S
from ortoo.namesrv.decisions.deletions import DELETIONS_RETENTION_MS
from ortoo.namesrv.settings import NamesrvSettings
from ortoo.snode.clients.locks import LOCK_LIFETIME_MS
from ortoo.snode.clients.pop_consumers import CONSUMERS_MAX, EXPIRY_S, LEASE_EXPIRY_S_MAX
from ortoo.snode.cluster.stream_ages import AFTER_CONNECTION, SPREAD
from ortoo.snode.rpc.operators.explanation.deliveries import SILENT_MS
from ortoo.snode.settings import SnodeSettings

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
    ("consumers.md", f"ends {DETACHED_GRACE_S:.0f} s after the connection of its snode to the enode breaks"),
    ("consumers.md", f"after {HEARTBEAT_TIMEOUT_S:.0f} s of silence from the snode"),
    ("consumers.md", f"ends after {LOCK_LIFETIME_MS // 1000} s unless it is renewed"),
    ("consumers.md", f"during a pop and for {EXPIRY_S:.0f} s after its last one"),
    ("consumers.md", f"at most {LEASE_EXPIRY_S_MAX / 60:.0f} min after the pop"),
    ("consumers.md", f"One snode lists at most {CONSUMERS_MAX:,} of these consumers"),
    ("consumers.md", f"at {AFTER_CONNECTION} to {AFTER_CONNECTION + SPREAD:.2f} times this age"),
    ("moves.md", f"when no message has arrived for {ROUTE_EXPIRY_S:.0f} seconds"),
    ("directory.md", f"Name servers report a deletion for {DELETIONS_RETENTION_MS // DAY_MS} days"),
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
    consumers, directory, doctor = (
        (PAGES / page).read_text() for page in ("consumers.md", "directory.md", "doctor.md")
    )
    assert SnodeSettings().connection_age_max_s == 1800
    assert "When a client's connection is half an hour old, give or take a tenth" in consumers
    assert NamesrvSettings().topic_deletion_grace_ms == DAY_MS
    assert "`topic_deletion_grace_ms` of the name server, by default a day" in directory
    assert RETENTION_USED_MAX == 0.75
    assert "has used more than three quarters of its retention" in doctor
    assert FREE_PERCENT_MIN == 10
    assert "a replica: less than a tenth is free" in doctor
