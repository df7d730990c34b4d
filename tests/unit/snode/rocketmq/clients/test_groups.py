"""What a group's configuration means to RocketMQ's clients."""

from ortoo.common.groups.delay_levels import DELAY_LEVELS_MS
from ortoo.common.groups.retry_policy import RetryPolicy
from ortoo.snode.cluster.routes import Group
from ortoo.snode.rocketmq.clients.settings_reply import rules_of


def test_clients_are_told_the_groups_own_back_off() -> None:
    """The classic one is the protocol's; a list or growing delays are told as they are, with one attempt more."""
    assert rules_of(None).retry_delays_ms == DELAY_LEVELS_MS
    assert rules_of(Group("g")).retry_delays_ms == DELAY_LEVELS_MS
    listed = rules_of(Group("g", retry=RetryPolicy.listed((0, 5_000)), attempts_max=3))
    assert (listed.retry_delays_ms, listed.attempts_max) == ((0, 5_000), 4)
    assert rules_of(Group("g", retry=RetryPolicy.exponential(100, 400))).retry_delays_ms == (100, 200, 400)
