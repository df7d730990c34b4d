"""The topics that belong to a group or to another topic, and their owners.

Only servers write to the retry topic and the dead-letter topic of a group.
"""

RETRY_PREFIX, DEAD_LETTER_PREFIX = "%RETRY%", "%DLQ%"
"""Prefixes of the topics that belong to a group."""
LITE_PREFIX = "%LMQ%|"
"""Prefix of the topics that store messages of lite topics: %LMQ%|PARENT|LITE."""


def group_of_topic(name: str) -> str | None:
    """The group of a retry topic or dead-letter topic; None for other topics."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return None


def parent_of_topic(name: str) -> str | None:
    """The parent of a lite topic; None for other topics. Only the parent's name may contain `|`."""
    return name.removeprefix(LITE_PREFIX).rpartition("|")[0] if name.startswith(LITE_PREFIX) else None
