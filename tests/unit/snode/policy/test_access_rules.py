"""A file of rules, text by text, and the permissions of names, against a model that tries all rules."""

from collections.abc import Mapping
from functools import reduce
from operator import or_

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.directory.topic import Permission, Placement
from ortoo.common.errors import Forbidden, Invalid
from ortoo.common.groups.group_topics import owner_of_name
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.routes import DirectoryUpdate, Topic
from ortoo.snode.policy.access_rules import (
    ADMIN,
    ROLES_OF_USER_MAX,
    USERS_MAX,
    AccessRules,
    Grant,
    RequiredPermission,
    Resource,
    UserRules,
    grant_text,
    parse_access_rules,
)
from ortoo.snode.policy.principal import ANONYMOUS, PRINCIPAL, Principal
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError
from ortoo.snode.rocketmq.protocol.names import check_same_topic, stored_topic

NAMES = st.text("ab", max_size=4)
PATTERNS = st.dictionaries(
    st.one_of(NAMES, NAMES.map(lambda text: f"{text}*")),
    st.sampled_from([Grant.DENY, Grant.PUB, Grant.SUB, Grant.PUB | Grant.SUB]),
    max_size=6,
)
GRANTS = "give PUB, SUB, BROWSE, several of them with |, or DENY"
USER = "[[user]]\naccess_key = 'a'\n"
ROLE = "[[role]]\nname = 'r'\n"
RULES = st.builds(UserRules, topics=PATTERNS, groups=PATTERNS)


@given(PATTERNS, PATTERNS, NAMES, st.sampled_from([Grant.PUB, Grant.SUB, Grant.PUB | Grant.SUB]))
def test_the_rule_that_says_most_about_a_name_decides(
    topics: dict[str, Grant], groups: dict[str, Grant], name: str, grant: Grant
) -> None:
    """From the full name letter by letter down to nothing; topics and groups separately."""
    user = UserRules(topics=topics, groups=groups)

    def granted(rules: dict[str, Grant]) -> Grant:
        if name in rules:
            return rules[name]
        for length in range(len(name), -1, -1):
            if f"{name[:length]}*" in rules:
                return rules[f"{name[:length]}*"]
        return Grant.DENY

    for resource, said, rules in (
        (Resource.TOPIC, name, topics),
        (Resource.GROUP, name, groups),
        (Resource.TOPIC, f"%RETRY%{name}", groups),
        (Resource.TOPIC, f"%DLQ%{name}", groups),
        (Resource.TOPIC, f"%LMQ%|{name}|lite", topics),
    ):
        assert user.allows(RequiredPermission(resource, said, grant)) == bool(granted(rules) & grant)
    assert not user.allows(ADMIN)
    assert UserRules(admin=True).allows(RequiredPermission(Resource.TOPIC, name, grant))
    assert UserRules(admin=True).allows(ADMIN)


@given(st.dictionaries(st.sampled_from("xyz"), RULES), PATTERNS, NAMES, st.sampled_from(Resource))
def test_roles_are_their_rules_and_rules_of_the_user_decide_before_them(
    roles: dict[str, UserRules], own: dict[str, Grant], name: str, resource: Resource
) -> None:
    """A user with one role has what its rules, written for the user, permit. Several roles add up, in any order."""

    def file_of(given: Mapping[str, UserRules], *, own: Mapping[str, Grant]) -> AccessRules:
        """A file with a user `shop` with these roles, and one user for each role with the role's rules."""
        tables = [f"[[role]]\nname = '{role}'\n{_written(rules)}" for role, rules in given.items()]
        tables += [f"[[user]]\naccess_key = '{role}'\n{_written(rules)}" for role, rules in given.items()]
        shop = f"[[user]]\naccess_key = 'shop'\nroles = {list(given)}\n"
        return parse_access_rules("\n".join([*tables, shop + _written(UserRules(topics=own, groups=own))]))

    rules = file_of(roles, own={})
    grants = {role: rules.users[role].grant_on(resource, name) for role in roles}
    added = reduce(or_, grants.values(), Grant.DENY)
    assert rules.users["shop"].grant_on(resource, name) == added
    assert file_of(dict(reversed(roles.items())), own={}).users["shop"].grant_on(resource, name) == added
    for role in roles:
        assert file_of({role: roles[role]}, own={}).users["shop"].grant_on(resource, name) == grants[role]
    is_own = name in own or any(rule.endswith("*") and name.startswith(rule[:-1]) for rule in own)
    decided = UserRules(topics=own, groups=own).grant_on(resource, name) if is_own else added
    assert file_of(roles, own=own).users["shop"].grant_on(resource, name) == decided


def _written(rules: UserRules) -> str:
    """The rules as lines of an access file."""
    lines = []
    for kind, grants in (("topics", rules.topics), ("groups", rules.groups)):
        pairs = ", ".join(f'"{name}" = "{grant_text(grant)}"' for name, grant in grants.items())
        lines.append(f"{kind} = {{ {pairs} }}\n")
    return "".join(lines)


def test_a_role_makes_admins_and_observers() -> None:
    """The roles apply to their users alone, and a file without roles is as before."""
    rules = parse_access_rules(
        """
        [[user]]
        access_key = "ann"
        roles = ["operators"]
        [[user]]
        access_key = "watch"
        roles = ["support", "oncall"]
        [[user]]
        access_key = "shop"
        [[role]]
        name = "operators"
        admin = true
        [[role]]
        name = "oncall"
        observer = true
        [[role]]
        name = "support"
        topics = { t = "BROWSE" }
        """
    )
    assert list(rules.roles) == ["operators", "oncall", "support"]
    assert list(rules.users["watch"].roles) == ["support", "oncall"]
    assert [rules.is_admin(user) for user in ("ann", "watch", "shop")] == [True, False, False]
    assert [rules.is_observer(user) for user in ("ann", "watch", "shop")] == [False, True, False]
    browse = RequiredPermission(Resource.TOPIC, "t", Grant.BROWSE)
    assert [rules.users[user].allows(browse) for user in ("ann", "watch", "shop")] == [True, True, False]
    assert parse_access_rules(USER).roles == {}


def test_a_topic_that_only_looks_like_a_lite_topic_has_rights_of_its_own() -> None:
    """The directory stores the parents. Permissions on a topic are none on an ordinary topic with such a name."""
    directory, name = DirectoryCache(), stored_topic("a", "s1")
    user, wanted = UserRules(topics={"a": Grant.SUB}), RequiredPermission(Resource.TOPIC, name, Grant.SUB)
    assert user.allows(wanted, directory.governor_of)  # a lite topic that this snode has not used
    ordinary = Topic(name, 1, 1, Permission.READ_WRITE, (Placement("e", 1, 1),))
    directory.apply(DirectoryUpdate(1, True, (ordinary,)))
    assert not user.allows(wanted, directory.governor_of)
    assert not UserRules(roles={"role": user}).allows(wanted, directory.governor_of)
    assert UserRules(topics={name: Grant.SUB}).allows(wanted, directory.governor_of)


def test_the_stored_group_of_a_topic_governs_it() -> None:
    """The permissions on a group's topic are those on the group, also if a lite topic is below it."""
    directory, retries = DirectoryCache(), owner_of_name("%RETRY%g")
    stored = Topic("%RETRY%g", 1, 1, Permission.READ_WRITE, (), owner_group=retries.group, owner_kind=retries.kind)
    below = stored_topic(stored.name, "s1")
    everything = UserRules(topics={"*": Grant.SUB})
    consumer = UserRules(groups={"g": Grant.SUB})
    for known in (False, True):
        for name in (stored.name, below, "%DLQ%g"):
            wanted = RequiredPermission(Resource.TOPIC, name, Grant.SUB)
            assert not everything.allows(wanted, directory.governor_of), (known, name)
            assert consumer.allows(wanted, directory.governor_of), (known, name)
        directory.apply(DirectoryUpdate(1, True, (stored,)))


@pytest.mark.parametrize(("parent", "other"), [("a|vip", "a"), ("a", "a|vip"), ("|", ""), ("a|b|c", "a|b")])
def test_a_lite_topic_has_the_rights_of_its_parent_alone(parent: str, other: str) -> None:
    """The parent's name may have bars: permissions on `a` are none on the lite topics of `a|vip`."""
    lite = RequiredPermission(Resource.TOPIC, stored_topic(parent, "s1"), Grant.SUB)
    assert UserRules(topics={parent: Grant.SUB}).allows(lite)
    assert not UserRules(topics={other: Grant.SUB}).allows(lite)
    check_same_topic(parent, lite.name)
    with pytest.raises(GrpcProxyError):
        check_same_topic(other, lite.name)


def test_a_file_says_who_may_what() -> None:
    """All fields of a file."""
    rules = parse_access_rules(
        """
        trusted_addresses = ["10.1.0.0/16", "::1"]
        [[user]]
        access_key = "ann"
        admin = true
        [[user]]
        access_key = "shop"
        topics = { a = "PUB", b = "SUB|PUB", c = "DENY", d = "SUB" }
        groups = { g = "SUB" }
        [[user]]
        access_key = "watch"
        observer = true
        """
    )
    both = Grant.PUB | Grant.SUB
    assert rules.users == {
        "ann": UserRules(admin=True),
        "shop": UserRules(topics={"a": Grant.PUB, "b": both, "c": Grant.DENY, "d": Grant.SUB}, groups={"g": Grant.SUB}),
        "watch": UserRules(observer=True),
    }
    assert [rules.is_observer(user) for user in ("ann", "shop", "watch", "nobody")] == [False, False, True, False]
    assert [str(one) for one in rules.trusted] == ["10.1.0.0/16", "::1/128"]
    assert (rules.is_admin("ann"), rules.is_admin("shop"), rules.is_admin("nobody")) == (True, False, False)


def test_addresses_are_compared_without_their_ports() -> None:
    """Without trusted addresses none is trusted, and a malformed address never is."""
    assert not AccessRules({}).is_trusted("10.1.0.1:80")
    rules = parse_access_rules("trusted_addresses = ['10.1.0.0/16', 'fe80::/10']\n" + USER)
    peers = ("10.1.255.1:80", "[fe80::1]:80", "10.2.0.1:80", "[::1]:80", "unix:", "10.1.0.1", "")
    assert [rules.is_trusted(peer) for peer in peers] == [True, True, False, False, False, False, False]


def test_an_observer_needs_no_permission_for_an_observation_alone() -> None:
    """The same permissions are refused for another method; others hear that observers may call this one."""
    rules = AccessRules({"watch": UserRules(observer=True), "shop": UserRules()})
    needs = [ADMIN, RequiredPermission(Resource.TOPIC, "t", Grant.SUB)]
    rules.check("watch", needs, is_observation=True)
    for need in needs:
        with pytest.raises(Forbidden):
            rules.check("watch", [need])
    with pytest.raises(Forbidden, match="only admins and observers may do this"):
        rules.check("shop", needs, is_observation=True)


@pytest.mark.parametrize(
    ("need", "field", "words"),
    [
        (ADMIN, "access", "user shop is not an admin; only admins may do this"),
        (
            RequiredPermission(Resource.TOPIC, "t", Grant.PUB),
            "topic",
            "user shop has no PUB for topic 't'; an operator may grant it",
        ),
        (
            RequiredPermission(Resource.GROUP, "g", Grant.PUB | Grant.SUB),
            "group",
            "user shop has no PUB|SUB for group 'g'; an operator may grant it",
        ),
    ],
)
def test_who_is_refused_hears_what_is_missing_and_of_what(need: RequiredPermission, field: str, words: str) -> None:
    """Only the missing permission; the granted ones before it do not help."""
    rules = AccessRules({"shop": UserRules(topics={"mine": Grant.PUB})})
    mine = RequiredPermission(Resource.TOPIC, "mine", Grant.PUB)
    rules.check("shop", [mine])
    for needs in ([need], [mine, need], [need, mine]):
        with pytest.raises(Forbidden) as refused:
            rules.check("shop", needs)
        assert (refused.value.field, refused.value.message) == (field, words)


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ("[[user", "access_file", "this is not TOML: "),
        ("y = 1\nz = 1\n" + USER, "y", "'y' is unknown; give [[user]] tables, [[role]] tables and trusted_addresses"),
        ("", "user", f"give 1 to {USERS_MAX} [[user]] tables, otherwise no user has any permission"),
        ("user = 1", "user", f"give 1 to {USERS_MAX} [[user]] tables"),
        ("user = []", "user", f"give 1 to {USERS_MAX} [[user]] tables"),
        (USER + "y = 1\nx = 1", "user[0]", "'x' is unknown; give access_key, admin, groups, observer, roles, topics"),
        (USER + "[[user]]", "user[1].access_key", "missing or not unique; give each user its own access key"),
        ("[[user]]\naccess_key = ''", "user[0].access_key", "missing or not unique; give each user its own access key"),
        ("[[user]]\naccess_key = 1", "user[0].access_key", "missing or not unique; give each user its own access key"),
        (USER + USER, "user[1].access_key", "missing or not unique; give each user its own access key"),
        (USER + "admin = 1", "user[0].admin", "give true or false"),
        (USER + "topics = 'PUB'", "user[0].topics", 'give a table such as { orders = "PUB|SUB" }'),
        (USER + "groups = 'PUB'", "user[0].groups", 'give a table such as { orders = "PUB|SUB" }'),
        (USER + "topics = { t = 'PUB|X' }", "user[0].topics.t", f"'PUB|X'; {GRANTS}"),
        (USER + "groups = { g = '' }", "user[0].groups.g", f"''; {GRANTS}"),
        (ROLE + "y = 1\n" + USER, "role[0]", "'y' is unknown; give admin, groups, name, observer, topics"),
        (ROLE + "roles = ['r']\n" + USER, "role[0]", "'roles' is unknown; give admin, groups, name, observer, topics"),
        (ROLE + ROLE + USER, "role[1].name", "missing or not unique; give each role its own name"),
        (ROLE + "topics = { t = 'X' }\n" + USER, "role[0].topics.t", f"'X'; {GRANTS}"),
        (USER + "roles = 'r'", "user[0].roles", 'give a list of names of roles such as ["support"]'),
        (USER + "roles = [1]", "user[0].roles", 'give a list of names of roles such as ["support"]'),
        (USER + f"roles = {list('abcdefghijklmnopq')}", "user[0].roles", f"17 roles; give at most {ROLES_OF_USER_MAX}"),
        (USER + "roles = ['r']", "user[0].roles", "the role 'r' in line 3 is unknown; the file has no [[role]]"),
        (
            ROLE + USER + "[[user]]\nroles = [\n  'r',\n  'q']\naccess_key = 'b'",
            "user[1].roles",
            "the role 'q' in line 8 is unknown; the file has r",
        ),
        (
            "user = [{ access_key = 'a', roles = ['r'] }]",
            "user[0].roles",
            "the role 'r' is unknown; the file has no [[role]]",
        ),
        ("role = 1\n" + USER, "role", "give 0 to 1000 [[role]] tables"),
        (
            "trusted_addresses = 'x'\n" + USER,
            "trusted_addresses",
            "no list; give addresses such as 10.1.2.3 or 10.1.0.0/16",
        ),
        (
            "trusted_addresses = ['ten']\n" + USER,
            "trusted_addresses",
            "'ten' does not appear to be an IPv4 or IPv6 network; give",
        ),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_the_entry_and_the_cure(text: str, field: str, words: str) -> None:
    """No permission is guessed."""
    with pytest.raises(Invalid) as refused:
        parse_access_rules(text)
    assert refused.value.field == field
    assert refused.value.message.startswith(words)
    assert refused.value.message == words or words.endswith((": ", "give", "tables"))


def test_so_many_users_there_may_be() -> None:
    """One more is refused."""
    users = [f"[[user]]\naccess_key = '{number}'" for number in range(USERS_MAX + 1)]
    assert len(parse_access_rules("\n".join(users[:-1])).users) == USERS_MAX
    with pytest.raises(Invalid):
        parse_access_rules("\n".join(users))


def test_what_a_user_opened_is_the_users_and_an_admins() -> None:
    """Without access control every client may use it."""
    ann, shop = Principal("ann"), Principal("shop", is_unrestricted=False)
    assert PRINCIPAL.get() is ANONYMOUS
    assert ANONYMOUS.owns("shop")
    assert ANONYMOUS.may_send_to("t")
    assert (ann.owns("shop"), shop.owns("shop"), shop.owns("ann"), shop.owns("")) == (True, True, False, False)
    shop.check_owner("shop", "session", "session_id")
    with pytest.raises(Forbidden) as refused:
        shop.check_owner("ann", "session", "session_id")
    assert refused.value.field == "session_id"
    assert refused.value.message == "this session belongs to another user; use one of your own"
