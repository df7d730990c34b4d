"""Pages of the list of a parent's lite topics. Pure."""

from collections.abc import Mapping

from ortoo.common.cluster.sorted_names import SortedNames
from ortoo.common.groups.group_topics import LITE_PREFIX
from ortoo.namesrv.decisions.topics import LITE_TOPICS_OF_PARENT_MAX, Topic


def lite_page(
    names: SortedNames, topics: Mapping[str, Topic], parent: str, after: str, limit: int
) -> tuple[list[str], str]:
    """A page of the names of a parent's lite topics, as `SortedNames.page`; those of another parent are left out."""
    prefix = f"{LITE_PREFIX}{parent}|"
    page, next_after = names.page(max(after, prefix), limit or LITE_TOPICS_OF_PARENT_MAX)
    found = [name for name in page if name.startswith(prefix)]
    is_last = len(found) < len(page)
    return [name for name in found if topics[name].parent == parent], "" if is_last else next_after
