"""What a consumer group's configuration means to the protocol's clients."""

from ortoo.snode.rocketmq.settings_reply import GroupRules
from ortoo.snode.routes import Group


def rules_of(group: Group | None) -> GroupRules:
    """The rules for a group's members; a group that does not exist yet has the defaults."""
    return GroupRules()
