"""The defaults equal those of RocketMQ."""

from ortoo.client import ConsumerSettings, FlowLimits, HandlerOptions, PullSettings
from ortoo.client.pull.pull_handlers import SUSPEND_MIN_MS
from ortoo.common.directory.group import Group
from ortoo.enode.store.lock_table import LIFETIME_S
from ortoo.snode.settings import SnodeSettings


def test_consuming_goes_at_the_known_pace() -> None:
    """E-108, E-126, E-128, E-144, E-154: intervals of commits, rebalances, locks and long polls."""
    pull = PullSettings()
    assert (pull.commit_first_ms, pull.commit_interval_ms) == (10_000, 5_000)
    assert pull.rebalance_interval_ms == 20_000
    assert (pull.lock_renewal_ms, pull.lock_trust_ms, pull.lock_retry_ms) == (20_000, 30_000, 3_000)
    assert pull.lock_renewal_ms < pull.lock_trust_ms < LIFETIME_S * 1000 == 60_000
    assert (pull.pull_messages_max, pull.long_poll_ms, pull.flow_retry_ms) == (32, 15_000, 50)


def test_consumers_hold_what_is_known() -> None:
    """E-140, E-141, E-142, E-145, E-151: limits of flow, handlers, pauses in ordered processing."""
    limits, handling = FlowLimits(), HandlerOptions()
    assert (limits.messages_max, limits.bytes_max, limits.span_max) == (1_000, 100 << 20, 2_000)
    assert (handling.concurrency, handling.batch_messages_max) == (20, 1)
    assert (handling.retry_delay_ms, handling.timeout_ms) == (5_000, 900_000)
    assert (handling.suspend_ms, SUSPEND_MIN_MS) == (None, 10)


def test_slow_and_silent_are_what_they_were() -> None:
    """E-045 and E-082: 120 s of silence, 1,024 messages of lag. A group's retries end after 16."""
    assert SnodeSettings().session_expiry_s == 120
    assert (Group("g").slow_consumer_threshold_messages, Group("g").attempts_max) == (1_024, 16)
    assert ConsumerSettings().from_beginning is False
