"""The permissions of users, as written by an operator: decisions without I/O.

  trusted_addresses = ["10.1.0.0/16"]    # callers that may do everything unsigned

  [[user]]
  access_key = "ann"
  admin = true                           # everything

  [[user]]
  access_key = "watch"
  observer = true                        # the state of everything, without messages and changes

  [[role]]
  name = "support"
  topics = { orders = "BROWSE" }

  [[user]]
  access_key = "shop"
  roles = ["support"]                    # the permissions of these roles together
  topics = { orders = "PUB", "stock-*" = "PUB|SUB", invoices = "BROWSE" }
  groups = { "shop-*" = "SUB", "*" = "DENY" }

BROWSE permits the reads outside a group, and views of a group. SUB permits them too. The exact name has precedence,
then the longest prefix before a `*`. Names without a match are denied. A rule of the user has precedence over its
roles. The permissions of several roles are added. For the %RETRY% and %DLQ% topics of a group, the permissions on the
group apply.
"""

import enum
import ipaddress
import re
import tomllib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from ortoo.common.errors import Forbidden, Invalid
from ortoo.common.groups.group_topics import TopicGovernor, governor_of_name

USERS_MAX = 10_000
ROLES_MAX = 1_000
ROLES_OF_USER_MAX = 16
"""A call without an own rule of its user asks each role."""
_RULE_KEYS = frozenset({"admin", "observer", "topics", "groups"})
GovernorOf = Callable[[str], TopicGovernor]
"""Returns the group or the parent to which a topic belongs."""
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
    """The permissions of one user, or of one role, which has no roles itself."""

    admin: bool = False
    topics: Mapping[str, Grant] = field(default_factory=dict)
    groups: Mapping[str, Grant] = field(default_factory=dict)
    observer: bool = False
    """Whether the user may call the methods that only show the state of the cluster, for all topics and groups."""
    roles: Mapping[str, "UserRules"] = field(default_factory=dict)
    """The user's roles by name. `admin` and `observer` include those of the roles."""

    def allows(self, permission: RequiredPermission, governor_of: GovernorOf = governor_of_name) -> bool:
        """Whether the user has the permission."""
        if permission.resource is Resource.CLUSTER:
            return self.admin
        return bool(self.grant_on(permission.resource, permission.name, governor_of) & permission.grant)

    def grant_on(self, resource: Resource, name: str, governor_of: GovernorOf = governor_of_name) -> Grant:
        """The permissions on a topic or a group: those of a rule of the user, or else of all roles together."""
        if self.admin:
            return EVERY_GRANT
        resource, name = _governing_resource(resource, name, governor_of)
        grant = _find_grant(self.topics if resource is Resource.TOPIC else self.groups, name)
        if grant is None:
            grants = (role.grant_on(resource, name, governor_of) for role in self.roles.values())
            return reduce(or_, grants, Grant.DENY)
        return grant


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The permissions of all users."""

    users: Mapping[str, UserRules]
    trusted: tuple[Network, ...] = ()
    roles: Mapping[str, UserRules] = field(default_factory=dict)

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
        self,
        access_key: str,
        permissions: Iterable[RequiredPermission],
        *,
        is_observation: bool = False,
        governor_of: GovernorOf = governor_of_name,
    ) -> None:
        """Refuse a user who lacks one of `permissions`; observers need none for an observation.

        Errors: Forbidden, naming the permission.
        """
        user = self.users.get(access_key)
        if is_observation and self.is_observer(access_key):
            return
        for permission in permissions:
            if user is not None and user.allows(permission, governor_of):
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
    if unknown := sorted(data.keys() - {"user", "role", "trusted_addresses"}):
        raise Invalid(
            f"{unknown[0]!r} is unknown; give [[user]] tables, [[role]] tables and trusted_addresses", field=unknown[0]
        )
    roles: dict[str, UserRules] = {}
    for field_name, entry in _tables(data, "role", 0, ROLES_MAX):
        name = _name(entry, "name", roles, "give each role its own name", field_name)
        roles[name] = _rules(entry, field_name, {"name"}, {})
    users: dict[str, UserRules] = {}
    for number, (field_name, entry) in enumerate(_tables(data, "user", 1, USERS_MAX)):
        access_key = _name(entry, "access_key", users, "give each user its own access key", field_name)
        users[access_key] = _rules(entry, field_name, {"access_key", "roles"}, _roles_of(entry, roles, text, number))
    return AccessRules(users, _networks(data.get("trusted_addresses", [])), roles)


def _tables(data: Mapping[str, Any], kind: str, count_min: int, count_max: int) -> Iterator[tuple[str, Any]]:
    """(name for errors, table) of every [[user]] or [[role]]. Errors: Invalid."""
    entries = data.get(kind, [])
    if not isinstance(entries, list) or not count_min <= len(entries) <= count_max:
        reason = ", otherwise no user has any permission" if count_min else ""
        raise Invalid(f"give {count_min} to {count_max} [[{kind}]] tables{reason}", field=kind)
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise Invalid(f"this is not a table; write [[{kind}]] above its lines", field=f"{kind}[{number}]")
        yield f"{kind}[{number}]", entry


def _name(entry: Mapping[str, Any], key: str, known: Container[str], remedy: str, field_name: str) -> str:
    name = entry.get(key)
    if not isinstance(name, str) or not name or name in known:
        raise Invalid(f"missing or not unique; {remedy}", field=f"{field_name}.{key}")
    return name


def _rules(
    entry: Mapping[str, Any], field_name: str, other_keys: set[str], roles: Mapping[str, UserRules]
) -> UserRules:
    keys = _RULE_KEYS | other_keys
    if unknown := sorted(entry.keys() - keys):
        raise Invalid(f"{unknown[0]!r} is unknown; give {', '.join(sorted(keys))}", field=field_name)
    return UserRules(
        _flag(entry, "admin", field_name) or any(role.admin for role in roles.values()),
        _grants(entry.get("topics", {}), f"{field_name}.topics"),
        _grants(entry.get("groups", {}), f"{field_name}.groups"),
        _flag(entry, "observer", field_name) or any(role.observer for role in roles.values()),
        roles,
    )


def _roles_of(entry: Mapping[str, Any], roles: Mapping[str, UserRules], text: str, number: int) -> dict[str, UserRules]:
    names, field_name = entry.get("roles", []), f"user[{number}].roles"
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Invalid('give a list of names of roles such as ["support"]', field=field_name)
    if len(names) > ROLES_OF_USER_MAX:
        raise Invalid(f"{len(names)} roles; give at most {ROLES_OF_USER_MAX}", field=field_name)
    for name in names:
        if name not in roles:
            known = f"the file has {', '.join(sorted(roles)[:10])}" if roles else "the file has no [[role]]"
            raise Invalid(f"the role {name!r}{_line_of(text, number, name)} is unknown; {known}", field=field_name)
    return {name: roles[name] for name in names}


def _line_of(text: str, number: int, role: str) -> str:
    """The words that name the line in which the user with this number has a role. Empty if it is not found."""
    user_count, is_in_roles = 0, False
    for line_number, line in enumerate(text.splitlines(), 1):
        user_count += bool(re.match(r"\s*\[\[\s*user\s*\]\]", line))
        is_in_roles = user_count == number + 1 and (is_in_roles or bool(re.match(r"\s*roles\s*=", line)))
        if is_in_roles and re.search(rf"""["']{re.escape(role)}["']""", line):
            return f" in line {line_number}"
    return ""


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


def _find_grant(grants: Mapping[str, Grant], name: str) -> Grant | None:
    """The permissions of the most exact rule for a name; None if no rule is for it."""
    if (exact := grants.get(name)) is not None:
        return exact
    beginnings = (key for key in grants if key.endswith("*") and name.startswith(key[:-1]))
    longest = max(beginnings, key=len, default=None)
    return None if longest is None else grants[longest]


def _governing_resource(resource: Resource, name: str, governor_of: GovernorOf) -> tuple[Resource, str]:
    """The resource whose rules apply: the group for its retry and dead-letter topics, the parent for a lite topic."""
    if resource is Resource.TOPIC:
        group, parent = governor_of(name)
        if group is not None:
            return Resource.GROUP, group
        if parent is not None:
            return _governing_resource(resource, parent, governor_of)
    return resource, name
