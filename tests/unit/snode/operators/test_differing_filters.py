"""Members of one group with different filters are a finding, because messages are lost between them."""

import pytest

from ortoo.snode.membership.group_members import GroupMember, Subscription
from ortoo.snode.membership.group_membership import Membership
from ortoo.snode.rpc.operators.findings import LISTED_MAX, differing_filters
from ortoo.verification.time.virtual_clock import VirtualClock


def joined(*filters: Subscription, broadcast: bool = False) -> Membership:
    """A group with a member for each filter."""
    membership = Membership(VirtualClock())
    for number, one in enumerate(filters):
        membership.join("g", GroupMember(f"c{number}", f"s{number}", subscriptions=(one,), broadcast=broadcast))
    return membership


def test_different_filters_are_shown_with_the_remedy() -> None:
    """It names the group, the topic and the filters."""
    (finding,) = differing_filters(joined(Subscription("t", "a"), Subscription("t", "b"), Subscription("t", "*")))
    assert finding.name == "filters differ"
    for text in ("group g", "to t", "3 filters", "a; b; none"):
        assert text in str(finding)


@pytest.mark.parametrize(
    "membership",
    [
        joined(Subscription("t", "a", version=1), Subscription("t", "a", version=2)),
        joined(Subscription("t", "*"), Subscription("t", "")),
        joined(Subscription("t", "a"), Subscription("u", "b")),
        joined(Subscription("t", "a"), Subscription("t", "b"), broadcast=True),
    ],
)
def test_equal_filters_and_broadcasts_are_no_finding(membership: Membership) -> None:
    """Another version of a filter, another spelling of none, another topic; broadcast members lose nothing."""
    assert [*differing_filters(membership)] == []


def test_the_findings_are_limited() -> None:
    """One mistake in a program with many topics does not fill the answer."""
    membership = Membership(VirtualClock())
    for number, tag in enumerate("ab"):
        some = tuple(Subscription(f"t{topic}", tag) for topic in range(LISTED_MAX + 5))
        membership.join("g", GroupMember(f"c{number}", f"s{number}", subscriptions=some))
    assert len([*differing_filters(membership)]) == LISTED_MAX
