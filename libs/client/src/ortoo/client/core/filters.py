"""Filters for the messages of a topic; servers apply them before messages are sent."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ortoo.common.errors import Invalid


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL92 condition over properties, such as Sql("region = 'EU' AND amount > 100"); TAGS is the tag.

    Only messages for which the condition is true are delivered; an absent property is NULL. docs/filters.md has the
    rules.
    """

    expression: str


Filter = str | Sql
"""A tag expression such as "UA || DL" ("*" = all messages), or an SQL condition."""

TopicFilters = Mapping[str, Filter] | Iterable[str] | str
"""Each topic with its filter, or just names of whole topics."""


def topic_filters(topics: TopicFilters) -> dict[str, Filter]:
    """Map each topic to its filter. Errors: Invalid when no topic is given."""
    if isinstance(topics, str):
        topics = (topics,)
    filters: dict[str, Filter] = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, "*")
    if not filters:
        raise Invalid("no topic; expected at least one", field="topics")
    return filters


def filter_expressions(filter: Filter) -> tuple[str, str]:
    """The tag expression and the SQL expression of a filter, as requests carry them."""
    return ("", filter.expression) if isinstance(filter, Sql) else (filter, "")
