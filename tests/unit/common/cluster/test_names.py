"""Names are checked, and the error contains the rule."""

import pytest

from ortoo.common.cluster.names import check_group_name, check_process_name, check_topic_name
from ortoo.common.errors import Invalid


@pytest.mark.parametrize("name", ["t", "A-b_9", "%RETRY%g", "a|b", "x" * 127])
def test_topic_names_that_rocketmq_allows(name: str) -> None:
    """Letters, digits and _ - % | up to 127 characters are a topic name."""
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "empty"),
        ("x" * 128, "128 characters"),
        ("a b", "' '"),
        ("a.b", "'.'"),
        ("a\n", "'\\\\n'"),
        ("é", "'é'"),
        ("a@b", "'@'"),
    ],
)
def test_wrong_topic_names_are_explained(name: str, words: str) -> None:
    """The error contains the mistake."""
    with pytest.raises(Invalid, match=words) as caught:
        check_topic_name(name)
    assert caught.value.field == "topic"


def test_group_names_are_shorter() -> None:
    """The maximum length of a group name leaves space for the %RETRY% prefix."""
    check_group_name("g" * 120)
    with pytest.raises(Invalid, match="at most 120"):
        check_group_name("g" * 121)


def test_process_names_may_name_a_room() -> None:
    """E-102: the machine-room strategy needs names like zone@name."""
    check_process_name("idc1@enode-0")
    for wrong in ("", "-a", "a/b", "x" * 64):
        with pytest.raises(Invalid):
            check_process_name(wrong)
