"""The groups to which new topics belong. Pure."""

from ortoo.common.cluster.names import check_group_name
from ortoo.common.directory.topic import Permission
from ortoo.common.errors import Invalid
from ortoo.common.groups.group_topics import NO_OWNER, TopicOwner, owner_of_name


def owner_of(name: str, given: TopicOwner, permission: Permission, *, is_typed: bool) -> TopicOwner:
    """The group to which a new topic belongs. A snode of an earlier version names it only in the name of the topic.

    `is_typed`: the topic takes messages of one type only. Errors: Invalid for another name than that of the group's
    topic, and for properties that such a topic cannot have.
    """
    owner = owner_of_name(name)
    if given not in (NO_OWNER, owner):
        expected = repr(given.topic) if all(given) else "a group and the kind of its topic"
        raise Invalid(f"topic {name!r} is no such topic of a group; expected {expected}", field="owner_group")
    if owner.kind:
        check_group_name(owner.group, "owner_group")
        if is_typed:
            raise Invalid(
                f"topic {name} belongs to group {owner.group}, so it takes every type; leave it unset",
                field="message_type",
            )
        check_permission(name, owner, permission)
    return owner


def check_permission(name: str, owner: TopicOwner, permission: Permission) -> None:
    """Refuse a permission with which a group could not read its topic, or the servers not write. Errors: Invalid."""
    if owner.kind and permission is not Permission.READ_WRITE:
        raise Invalid(
            f"topic {name} belongs to group {owner.group}, which reads what the servers write; give READ_WRITE, or "
            "leave it unset",
            field="permission",
        )
