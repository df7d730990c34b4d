"""The topics that belong to a group: its retry topic and its dead-letter topic. Only servers write to them."""

RETRY_PREFIX, DEAD_LETTER_PREFIX = "%RETRY%", "%DLQ%"
"""Prefixes of the topics that belong to a group."""


def group_of_topic(name: str) -> str:
    """The group of a retry topic or dead-letter topic; empty for other topics."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return ""
