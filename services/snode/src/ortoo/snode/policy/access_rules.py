"""The permissions of users, as written by an operator: decisions without I/O.

  trusted_addresses = ["10.1.0.0/16"]    # callers that may do everything unsigned

  [[user]]
  access_key = "ann"
  admin = true                           # everything

  [[user]]
  access_key = "watch"
  observer = true                        # the state of everything, without messages and changes

  [[user]]
  access_key = "shop"
  topics = { orders = "PUB", "stock-*" = "PUB|SUB", invoices = "BROWSE" }
  groups = { "shop-*" = "SUB", "*" = "DENY" }

BROWSE permits the reads outside a group, and views of a group. SUB permits them too. The exact name has precedence,
then the longest prefix before a `*`. Names without a match are denied. For the %RETRY% and %DLQ% topics of a group,
the permissions on the group apply.
"""

import enum
import ipaddress
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ortoo.common.errors import Forbidden, Invalid
from ortoo.common.groups.group_topics import group_of_topic, parent_of_topic

USERS_MAX = 10_000
_KEYS = frozenset({"access_key", "admin", "observer", "topics", "groups"})
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Grant(enum.Flag):
    """Permissions on a topic or a group: RocketMQ's PUB and SUB, and BROWSE."""

    DENY = 0
    PUB = enum.auto()
    SUB = enum.auto()
    BROWSE = enum.auto()


EVERY_GRANT = Grant.PUB | Grant.SUB | Grant.BROWSE
READING = Grant.SUB | Grant.BROWSE
"""Either permits reads that take no lease and move no offset."""


def grant_text(grant: Grant) -> str:
    """The permissions as in an access file, such as "PUB|SUB"."""
    return "|".join(one.name or "" for one in Grant if one & grant) or "DENY"


class Resource(enum.Enum):
    """The kind of a resource: a topic or a group."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"


class RequiredPermission(NamedTuple):
    """A permission that a call needs; any one of the grants is enough."""

    resource: Resource
    name: str
    grant: Grant


ADMIN = RequiredPermission(Resource.CLUSTER, "", Grant.DENY)
"""The permission of admins."""


@dataclass(frozen=True, slots=True)
class UserRules:
    """The permissions of one user."""

    admin: bool = False
    topics: Mapping[str, Grant] = field(default_factory=dict)
    groups: Mapping[str, Grant] = field(default_factory=dict)
    observer: bool = False
    """Whether the user may call the methods that only show the state of the cluster, for all topics and groups."""

    def allows(self, permission: RequiredPermission) -> bool:
        """Whether the user has the permission."""
        if permission.resource is Resource.CLUSTER:
            return self.admin
        return bool(self.grant_on(permission.resource, permission.name) & permission.grant)

    def grant_on(self, resource: Resource, name: str) -> Grant:
        """The permissions on a topic or a group."""
        if self.admin:
            return EVERY_GRANT
        resource, name = _governing_resource(resource, name)
        return _find_grant(self.topics if resource is Resource.TOPIC else self.groups, name)


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The permissions of all users."""

    users: Mapping[str, UserRules]
    trusted: tuple[Network, ...] = ()

    def is_trusted(self, peer: str) -> bool:
        """Whether callers from the address `peer`, host:port, may leave their calls unsigned."""
        if not self.trusted:
            return False
        try:
            address = ipaddress.ip_address(peer.rpartition(":")[0].strip("[]"))
        except ValueError:
            return False
        return any(address in network for network in self.trusted)

    def is_admin(self, access_key: str) -> bool:
        """Whether the user with this access key is an admin, who may do everything."""
        user = self.users.get(access_key)
        return user is not None and user.admin

    def is_observer(self, access_key: str) -> bool:
        """Whether the user with this access key may see the state of all topics and groups."""
        user = self.users.get(access_key)
        return user is not None and user.observer

    def check(
        self, access_key: str, permissions: Iterable[RequiredPermission], *, is_observation: bool = False
    ) -> None:
        """Refuse a user who lacks one of `permissions`; observers need none for an observation.

        Errors: Forbidden, naming the permission.
        """
        user = self.users.get(access_key)
        if is_observation and self.is_observer(access_key):
            return
        for permission in permissions:
            if user is not None and user.allows(permission):
                continue
            if permission.resource is Resource.CLUSTER:
                who = "admins and observers" if is_observation else "admins"
                raise Forbidden(f"user {access_key} is not an admin; only {who} may do this", field="access")
            what = grant_text(permission.grant)
            raise Forbidden(
                f"user {access_key} has no {what} for {permission.resource.value} {permission.name!r}; an operator "
                "may grant it",
                field=permission.resource.value,
            )


def parse_access_rules(text: str) -> AccessRules:
    """Parse the text of an access file. Errors: Invalid, naming the entry."""
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"this is not TOML: {error}", field="access_file") from None
    if unknown := sorted(data.keys() - {"user", "trusted_addresses"}):
        raise Invalid(f"{unknown[0]!r} is unknown; give [[user]] tables and trusted_addresses", field=unknown[0])
    entries = data.get("user", [])
    if not isinstance(entries, list) or not 1 <= len(entries) <= USERS_MAX:
        raise Invalid(f"give 1 to {USERS_MAX} [[user]] tables, otherwise no user has any permission", field="user")
    users: dict[str, UserRules] = {}
    for number, entry in enumerate(entries):
        field_name = f"user[{number}]"
        if not isinstance(entry, dict):
            raise Invalid("this is not a table; write [[user]] above its lines", field=field_name)
        if unknown := sorted(entry.keys() - _KEYS):
            raise Invalid(f"{unknown[0]!r} is unknown; give {', '.join(sorted(_KEYS))}", field=field_name)
        access_key = entry.get("access_key")
        if not isinstance(access_key, str) or not access_key or access_key in users:
            raise Invalid("missing or not unique; give each user its own access key", field=f"{field_name}.access_key")
        users[access_key] = UserRules(
            _flag(entry, "admin", field_name),
            _grants(entry.get("topics", {}), f"{field_name}.topics"),
            _grants(entry.get("groups", {}), f"{field_name}.groups"),
            _flag(entry, "observer", field_name),
        )
    return AccessRules(users, _networks(data.get("trusted_addresses", [])))


def _networks(addresses: object) -> tuple[Network, ...]:
    try:
        if not isinstance(addresses, list):
            raise ValueError("no list")
        return tuple(ipaddress.ip_network(str(one)) for one in addresses)
    except ValueError as error:
        raise Invalid(f"{error}; give addresses such as 10.1.2.3 or 10.1.0.0/16", field="trusted_addresses") from None


def _flag(entry: Mapping[str, object], name: str, field_name: str) -> bool:
    value = entry.get(name, False)
    if not isinstance(value, bool):
        raise Invalid("give true or false", field=f"{field_name}.{name}")
    return value


def _grants(table: object, field_name: str) -> dict[str, Grant]:
    if not isinstance(table, dict):
        raise Invalid('give a table such as { orders = "PUB|SUB" }', field=field_name)
    grants: dict[str, Grant] = {}
    for name, text in table.items():
        grant = Grant.DENY
        for word in str(text).split("|"):
            if word not in Grant.__members__:
                raise Invalid(
                    f"{text!r}; give PUB, SUB, BROWSE, several of them with |, or DENY", field=f"{field_name}.{name}"
                )
            grant |= Grant[word]
        grants[str(name)] = grant
    return grants


def _find_grant(grants: Mapping[str, Grant], name: str) -> Grant:
    exact = grants.get(name)
    if exact is not None:
        return exact
    beginnings = (key for key in grants if key.endswith("*") and name.startswith(key[:-1]))
    longest = max(beginnings, key=len, default=None)
    return Grant.DENY if longest is None else grants[longest]


def _governing_resource(resource: Resource, name: str) -> tuple[Resource, str]:
    """The resource whose rules apply: the group for its retry and dead-letter topics, the parent for a lite topic."""
    if resource is Resource.TOPIC:
        if (group := group_of_topic(name)) is not None:
            return Resource.GROUP, group
        if (parent := parent_of_topic(name)) is not None:
            return Resource.TOPIC, parent
    return resource, name
