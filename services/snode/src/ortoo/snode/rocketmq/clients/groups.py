"""What a consumer group's configuration means to the protocol's clients."""

from ortoo.common.groups.pop import PopRules
from ortoo.common.groups.retry_policy import RetryKind
from ortoo.snode.cluster.routes import Group
from ortoo.snode.rocketmq.clients.settings_reply import RETRY_DELAYS_MS, GroupRules


def rules_of(group: Group | None) -> GroupRules:
    """The rules for a group's members; a group that does not exist yet has the defaults.

    A group counts retries, the protocol deliveries: the first one is no retry.
    """
    if group is None:
        return GroupRules()
    is_classic = group.retry.kind is RetryKind.CLASSIC
    delays_ms = RETRY_DELAYS_MS if is_classic else group.retry.delays_ms
    return GroupRules(attempts_max=group.attempts_max + 1, retry_delays_ms=delays_ms)


def pop_rules(group: Group | None) -> PopRules:
    """How a group pops.

    Messages of one message group always come in order: the protocol's clients cannot tell, and a listener that wants
    it need not ask for it.
    """
    return PopRules(rules_of(group).attempts_max, in_order=True)
