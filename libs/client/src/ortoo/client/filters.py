"""Which messages of a topic a reader wants; servers choose before anything travels."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL92 condition over properties, such as Sql("region = 'EU' AND amount > 100"); TAGS is the tag.

    Only messages for which it is true are delivered; an absent property is NULL. docs/filters.md has the rules.
    """

    expression: str


Filter = str | Sql
"""A tag expression such as "UA || DL" ("*" = everything), or an SQL condition."""


def expressions(wanted: Filter) -> tuple[str, str]:
    """The tag expression and the SQL expression of a filter, as requests carry them."""
    return ("", wanted.expression) if isinstance(wanted, Sql) else (wanted, "")
