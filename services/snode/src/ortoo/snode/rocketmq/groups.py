"""What a consumer group's configuration means to the protocol's clients."""

from ortoo.common.pop import PopRules
from ortoo.snode.rocketmq.settings_reply import GroupRules
from ortoo.snode.routes import Group, MessageType, Topic


def rules_of(group: Group | None) -> GroupRules:
    """The rules for a group's members; a group that does not exist yet has the defaults.

    A group counts retries, the protocol deliveries: the first one is no retry.
    """
    return GroupRules() if group is None else GroupRules(attempts_max=group.attempts_max + 1)


def pop_rules(group: Group | None, topic: Topic | None) -> PopRules:
    """How a group pops a topic.

    Messages of one message group always come in order: the protocol's clients cannot tell, and a listener that wants
    it need not ask for it.
    """
    by_priority = topic is not None and topic.message_type is MessageType.PRIORITY
    return PopRules(rules_of(group).attempts_max, in_order=True, by_priority=by_priority)
